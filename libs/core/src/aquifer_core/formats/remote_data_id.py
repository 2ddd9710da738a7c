"""The remote data identifier: where a chunk of a log segment lies in its object."""

import struct
from dataclasses import dataclass
from typing import Final, Self

from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats.checksum import Buffer
from aquifer_core.ids import KafkaUuid

__all__ = ["REMOTE_DATA_ID_BYTES", "RemoteDataId"]

_VERSION: Final = 1
_LAYOUT: Final = struct.Struct(">bbqiI16s")
_COMPRESSED: Final = 0x01
_ENCRYPTED: Final = 0x02

REMOTE_DATA_ID_BYTES: Final = _LAYOUT.size


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteDataId:
    """Where a chunk's stored bytes lie; the object itself is found from the segment's metadata.

    Attributes:
        segment_id: Id of the remote log segment.
        position: Position of the stored bytes in the object.
        stored_length_bytes: Their number, after compression and encryption.
        crc32c: Their CRC-32C, unsigned.
        is_compressed: Whether the chunk was compressed.
        is_encrypted: Whether the chunk was sealed after that.
    """

    segment_id: KafkaUuid
    position: int
    stored_length_bytes: int
    crc32c: int
    is_compressed: bool = False
    is_encrypted: bool = False

    def encode(self) -> bytes:
        """Encode as version, flags, position, stored length, CRC-32C, segment id."""
        flags = _COMPRESSED * self.is_compressed | _ENCRYPTED * self.is_encrypted
        return _LAYOUT.pack(
            _VERSION,
            flags,
            self.position,
            self.stored_length_bytes,
            self.crc32c,
            self.segment_id.raw,
        )

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        """Decode the bytes of one identifier.

        Raises:
            CorruptIndexError: Size, version or flags are not known, or a number is negative.
        """
        if len(data) != REMOTE_DATA_ID_BYTES:
            raise CorruptIndexError(f"remote data id of {len(data)} bytes")
        version, flags, position, stored_length_bytes, crc, raw_id = _LAYOUT.unpack(data)
        if version != _VERSION or flags & ~(_COMPRESSED | _ENCRYPTED):
            raise CorruptIndexError(f"remote data id: version {version}, flags {flags:#x}")
        if position < 0 or stored_length_bytes < 0:
            raise CorruptIndexError(
                f"remote data id: {stored_length_bytes} bytes at position {position}"
            )
        return cls(
            segment_id=KafkaUuid(raw_id),
            position=position,
            stored_length_bytes=stored_length_bytes,
            crc32c=crc,
            is_compressed=bool(flags & _COMPRESSED),
            is_encrypted=bool(flags & _ENCRYPTED),
        )
