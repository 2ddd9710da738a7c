"""Producer snapshots: the producer state before an offset (K-6.5)."""

import struct
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Final

from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats.checksum import Buffer, crc32c

__all__ = ["ProducerSnapshotEntry", "decode_snapshot", "encode_snapshot"]

_VERSION: Final = 1
_HEADER: Final = struct.Struct(">hIi")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_CRC_END: Final = 6


@dataclass(frozen=True, slots=True)
class ProducerSnapshotEntry:
    """State of one producer id; fields in file order.

    Attributes:
        producer_id: The producer.
        producer_epoch: Its latest epoch.
        last_sequence: Sequence of its last record; -1 when only a marker was seen.
        last_offset: Offset of its last record.
        offset_delta: Offsets between the first and the last record of its last batch.
        timestamp_ms: Timestamp of its last batch.
        coordinator_epoch: Epoch of the coordinator that wrote the last marker; -1 for none.
        current_txn_first_offset: First offset of the open transaction; -1 for none.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int = -1
    current_txn_first_offset: int = -1


def decode_snapshot(data: Buffer) -> list[ProducerSnapshotEntry]:
    """Parse a snapshot.

    Raises:
        CorruptIndexError: Version, checksum or size is wrong.
    """
    if len(data) < _HEADER.size:
        raise CorruptIndexError(f"producer snapshot of {len(data)} bytes is cut short")
    version, stored_crc, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise CorruptIndexError(f"producer snapshot: version {version} is not supported")
    computed_crc = crc32c(memoryview(data)[_CRC_END:])
    if computed_crc != stored_crc:
        raise CorruptIndexError(
            f"producer snapshot: stored crc {stored_crc:#010x}, computed {computed_crc:#010x}"
        )
    if len(data) != _HEADER.size + count * _ENTRY.size:
        raise CorruptIndexError(f"producer snapshot of {len(data)} bytes for {count} entries")
    entries = memoryview(data)[_HEADER.size :]
    return [ProducerSnapshotEntry(*fields) for fields in _ENTRY.iter_unpack(entries)]


def encode_snapshot(entries: Iterable[ProducerSnapshotEntry]) -> bytes:
    """Encode a snapshot; no entries give a valid snapshot of 10 bytes."""
    packed = [_ENTRY.pack(*astuple(entry)) for entry in entries]
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return struct.pack(">hI", _VERSION, crc32c(body)) + body
