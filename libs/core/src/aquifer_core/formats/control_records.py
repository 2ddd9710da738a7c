"""Control batches that end transactions (K-6.2)."""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from aquifer_core.errors import CorruptRecordError
from aquifer_core.formats.record_batch import RecordBatch
from aquifer_core.formats.records import Record, decode_records, encode_batch

__all__ = [
    "ControlRecordType",
    "EndTxnMarker",
    "decode_end_txn_batch",
    "decode_end_txn_marker",
    "encode_end_txn_batch",
]

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_VERSION: Final = 0


class ControlRecordType(IntEnum):
    """What a control record does; the values are Kafka's."""

    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTxnMarker:
    """The end of one producer's transaction in one partition."""

    control_type: ControlRecordType
    coordinator_epoch: int


def encode_end_txn_batch(
    marker: EndTxnMarker,
    *,
    base_offset: int,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    partition_leader_epoch: int = -1,
) -> bytes:
    """Encode the control batch of one record that ends a transaction."""
    record = Record(
        offset=base_offset,
        timestamp_ms=timestamp_ms,
        key=_KEY.pack(_VERSION, marker.control_type),
        value=_VALUE.pack(_VERSION, marker.coordinator_epoch),
    )
    return encode_batch(
        [record],
        partition_leader_epoch=partition_leader_epoch,
        is_transactional=True,
        is_control=True,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def decode_end_txn_marker(record: Record) -> EndTxnMarker:
    """Decode a record of a control batch; bytes of later versions behind the known are ignored.

    Raises:
        CorruptRecordError: It is not the end of a transaction.
    """
    try:
        key_version, control_type = _KEY.unpack_from(record.key or b"")
        value_version, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
        if min(key_version, value_version) < 0:
            raise ValueError(f"versions {key_version}, {value_version}")
        kind = ControlRecordType(control_type)
    except (struct.error, ValueError) as error:
        raise CorruptRecordError(
            f"control record at offset {record.offset} is no transaction marker: {error}"
        ) from error
    return EndTxnMarker(control_type=kind, coordinator_epoch=coordinator_epoch)


def decode_end_txn_batch(batch: RecordBatch) -> EndTxnMarker:
    """Decode the first record of a control batch.

    Raises:
        CorruptRecordError: It is not the end of a transaction.
    """
    if not batch.is_control:
        raise CorruptRecordError(f"batch at offset {batch.base_offset} is no control batch")
    for record in decode_records(batch):
        return decode_end_txn_marker(record)
    raise CorruptRecordError(f"control batch at offset {batch.base_offset} is empty")
