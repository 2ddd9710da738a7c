"""AES-256-GCM for the chunks and index parts of one segment.

The data key is random and belongs to one copy of one segment, which seals every place exactly once. So the nonce may be the place
itself, is not stored, and never repeats. Segment and place are authenticated as well: what was moved elsewhere does not open.

The streaming interface is used because it takes a chunk in pieces and releases the interpreter lock.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from aquifer_core.formats.checksum import Buffer
from aquifer_core.ids import KafkaUuid
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import GCM

TAG_BYTES: Final = 16
_NONCE: Final = struct.Struct(">iq")
_ASSOCIATED: Final = struct.Struct(">7sb16siq?")
_MAGIC: Final = b"aquifer"
_VERSION: Final = 1


class PlaceKind(IntEnum):
    """What is sealed."""

    CHUNK = 0
    INDEX_PART = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where sealed bytes belong in their segment.

    Attributes:
        kind: chunk or index part.
        number: its number among those.
        is_compressed: whether it was compressed before.
    """

    kind: PlaceKind
    number: int
    is_compressed: bool = False


class SegmentCipher:
    """Seals and opens with the data key of one segment. May be used by many threads at once."""

    def __init__(self, data_key: bytes, segment_id: KafkaUuid) -> None:
        self.data_key = data_key
        self._key = AES(data_key)
        self._segment_id = segment_id

    def seal(self, place: Place, pieces: Sequence[Buffer]) -> bytearray:
        """Encrypt pieces as one; the tag comes after them. Call it once for a place."""
        size_bytes = sum(len(piece) for piece in pieces)
        sealed = bytearray(size_bytes + TAG_BYTES)
        encryptor = Cipher(self._key, GCM(_nonce(place))).encryptor()
        encryptor.authenticate_additional_data(self._associated(place))
        position = 0
        with memoryview(sealed) as view:
            for piece in pieces:
                position += encryptor.update_into(piece, view[position:])
            encryptor.finalize()
            view[size_bytes:] = encryptor.tag
        return sealed

    def open(self, place: Place, sealed: Buffer) -> bytes | None:
        """Decrypt; none when the bytes were not sealed so, for this place of this segment."""
        view = memoryview(sealed)
        if len(view) < TAG_BYTES:
            return None
        tag = bytes(view[-TAG_BYTES:])
        decryptor = Cipher(self._key, GCM(_nonce(place), tag)).decryptor()
        decryptor.authenticate_additional_data(self._associated(place))
        opened = decryptor.update(view[:-TAG_BYTES])
        try:
            decryptor.finalize()
        except InvalidTag:
            return None
        return opened

    def _associated(self, place: Place) -> bytes:
        return _ASSOCIATED.pack(
            _MAGIC, _VERSION, self._segment_id.raw, place.kind, place.number, place.is_compressed
        )


def _nonce(place: Place) -> bytes:
    return _NONCE.pack(place.kind, place.number)
