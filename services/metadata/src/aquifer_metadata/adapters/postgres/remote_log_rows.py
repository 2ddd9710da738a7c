"""Rows of remote log segments <-> domain values."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from aquifer_core.ids import KafkaUuid, RemoteLogSegmentId, TopicIdPartition
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState
from sqlalchemy import RowMapping

FACT_COLUMNS = """s.segment_id, s.start_offset, s.end_offset, s.broker_id, s.max_timestamp_ms, s.event_timestamp_ms,
 s.segment_size_bytes, s.state, s.leader_epochs, s.leader_epoch_offsets, s.custom_metadata, s.txn_index_empty"""
"""What `segment_from_row` needs of a segment table called `s`."""

FACT_COLUMN_NAMES = tuple(name.strip().removeprefix("s.") for name in FACT_COLUMNS.split(","))
"""The same as keys of a row."""

SEGMENT_COLUMNS = f"s.topic_id, s.partition, {FACT_COLUMNS}"
"""With the partition, for those who did not ask for one."""


Columns: TypeAlias = Mapping[str, Any] | RowMapping
"""A row by column names."""


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """A partition as columns; `values` are bind parameters of every statement on it."""

    topic_id: uuid.UUID
    partition: int

    @property
    def values(self) -> dict[str, Any]:
        """As bind parameters."""
        return {"topic_id": self.topic_id, "partition": self.partition}


def partition_key(tip: TopicIdPartition) -> PartitionKey:
    """The partition as columns; its name is not part of its identity."""
    return PartitionKey(uuid.UUID(bytes=tip.topic_id.raw), tip.partition)


def segment_uuid(segment_id: RemoteLogSegmentId) -> uuid.UUID:
    """The segment's id as a column."""
    return uuid.UUID(bytes=segment_id.id.raw)


def segment_values(metadata: RemoteLogSegmentMetadata) -> dict[str, Any]:
    """A segment as bind parameters, its epoch ranges as three arrays of equal length."""
    ranges = metadata.epoch_ranges()
    return {
        "segment_id": segment_uuid(metadata.segment_id),
        **partition_key(metadata.topic_id_partition).values,
        "start_offset": metadata.start_offset,
        "end_offset": metadata.end_offset,
        "max_timestamp_ms": metadata.max_timestamp_ms,
        "segment_size_bytes": metadata.segment_size_bytes,
        "txn_index_empty": metadata.txn_index_empty,
        **changing_values(metadata),
        "epochs": list(ranges),
        "epoch_starts": [start for start, _ in ranges.values()],
        "epoch_ends": [end for _, end in ranges.values()],
    }


def changing_values(metadata: RemoteLogSegmentMetadata) -> dict[str, Any]:
    """The part of a segment that an update replaces, as bind parameters."""
    return {
        "state": int(metadata.state),
        "broker_id": metadata.broker_id,
        "event_timestamp_ms": metadata.event_timestamp_ms,
        "custom_metadata": metadata.custom_metadata,
    }


def segment_from_row(tip: TopicIdPartition, row: Columns) -> RemoteLogSegmentMetadata:
    """A segment of a partition that the caller named."""
    custom_metadata = row["custom_metadata"]
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(tip, KafkaUuid(row["segment_id"].bytes)),
        start_offset=row["start_offset"],
        end_offset=row["end_offset"],
        broker_id=row["broker_id"],
        max_timestamp_ms=row["max_timestamp_ms"],
        event_timestamp_ms=row["event_timestamp_ms"],
        segment_size_bytes=row["segment_size_bytes"],
        segment_leader_epochs=dict(
            zip(row["leader_epochs"], row["leader_epoch_offsets"], strict=True)
        ),
        state=RemoteLogSegmentState(row["state"]),
        custom_metadata=None if custom_metadata is None else bytes(custom_metadata),
        txn_index_empty=row["txn_index_empty"],
    )


def gone_segment_row(gone: Mapping[str, Any], changing: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a segment that history kept as JSON, with the changing part as it was after one of its events."""
    return {**gone, "segment_id": uuid.UUID(gone["segment_id"]), **changing}
