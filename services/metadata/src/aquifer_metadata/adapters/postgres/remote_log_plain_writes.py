"""The two changes of a copy that goes as planned, each as one statement that commits by itself.

A statement changes something only where nothing is to be judged: the partition is known and takes segments, the leader is not
replaced, the segment is new (or begun and nothing that answers look-ups meets it). In all other cases it changes nothing at
all, and `remote_log_writes` decides in a transaction; so there is one place for refusals, repeats and displacement.

A statement sees the database as it was when it began, but may have waited for the partition's row. It goes on only if the row's
version is the one that it saw: every change of a partition's segments gives the row a new one, so what it saw is still true.
"""

from collections.abc import Mapping
from typing import Any, Final

from aquifer_core.ids import RemoteLogSegmentId
from aquifer_core.segment import (
    MAX_CUSTOM_METADATA_BYTES,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
)
from aquifer_core.state import RemoteLogSegmentState, RemotePartitionDeleteState
from psycopg.types.numeric import Int4, Int8
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres.driver_statement import DriverStatement
from aquifer_metadata.adapters.postgres.remote_log_rows import partition_key, segment_uuid

__all__ = [
    "ADD",
    "FINISH",
    "add_values",
    "finish_values",
    "has_effect",
    "is_plain_finish",
    "origin_values",
]

_STARTED: Final = int(RemoteLogSegmentState.COPY_SEGMENT_STARTED)
_FINISHED: Final = int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
_FORGOTTEN: Final = int(RemotePartitionDeleteState.DELETE_PARTITION_FINISHED)
_ADDED: Final = "copy started"

_TAKE: Final = """UPDATE remote_log_partition p
  SET version = p.version + 1, highest_leader_epoch = greatest(p.highest_leader_epoch, %(leader_epoch)s::int)
  FROM remote_log_partition seen
  WHERE p.topic_id = %(topic_id)s AND p.partition = %(partition)s
    AND seen.topic_id = %(topic_id)s AND seen.partition = %(partition)s AND seen.version = p.version
    AND (%(leader_epoch)s::int IS NULL OR p.highest_leader_epoch <= %(leader_epoch)s::int)"""

ADD: Final = DriverStatement(f"""
WITH taken AS (
  {_TAKE}
    AND p.delete_state IS NULL
    AND NOT EXISTS (SELECT FROM remote_log_segment_event v WHERE v.segment_id = %(segment_id)s)
    AND NOT EXISTS (SELECT FROM remote_log_segment s WHERE s.segment_id = %(segment_id)s)
  RETURNING p.version),
added AS (
  INSERT INTO remote_log_segment (segment_id, topic_id, partition, start_offset, end_offset, broker_id,
    max_timestamp_ms, event_timestamp_ms, segment_size_bytes, state, leader_epochs, leader_epoch_offsets,
    custom_metadata, txn_index_empty, writer_leader_epoch, version, created_at_ms, updated_at_ms)
  SELECT %(segment_id)s, %(topic_id)s, %(partition)s, %(start_offset)s, %(end_offset)s, %(broker_id)s,
    %(max_timestamp_ms)s, %(event_timestamp_ms)s, %(segment_size_bytes)s, {_STARTED}, %(epochs)s::int[],
    %(epoch_starts)s::bigint[], %(custom_metadata)s::bytea, %(txn_index_empty)s, %(leader_epoch)s::int, version, %(now_ms)s, %(now_ms)s
  FROM taken),
epochs AS (
  INSERT INTO remote_log_segment_epoch (topic_id, partition, leader_epoch, start_offset, segment_id, end_offset,
    txn_index_empty, referenced)
  SELECT %(topic_id)s, %(partition)s, r.leader_epoch, r.start_offset, %(segment_id)s, r.end_offset, %(txn_index_empty)s, false
  FROM taken, unnest(%(epochs)s::int[], %(epoch_starts)s::bigint[], %(epoch_ends)s::bigint[])
    AS r (leader_epoch, start_offset, end_offset))
INSERT INTO remote_log_segment_event (topic_id, partition, version, timestamp_ms, segment_id, from_state, to_state,
  broker_id, event_timestamp_ms, custom_metadata, leader_epoch, reason, trace_id)
SELECT %(topic_id)s, %(partition)s, version, %(now_ms)s, %(segment_id)s, NULL, {_STARTED}, %(broker_id)s,
  %(event_timestamp_ms)s, %(custom_metadata)s::bytea, %(leader_epoch)s::int, '{_ADDED}', %(trace_id)s::text
FROM taken
RETURNING version
""")
"""Adds a segment whose id is new to a partition that is known."""

# Ranges of a segment in an epoch that answer look-ups and begin inside of it, or before it and reach into it.
_MEETS_ANOTHER: Final = """SELECT FROM mine m CROSS JOIN LATERAL (
      SELECT o.end_offset FROM remote_log_segment_epoch o
      WHERE o.topic_id = %(topic_id)s AND o.partition = %(partition)s AND o.leader_epoch = m.leader_epoch
        AND o.start_offset <= m.end_offset AND o.referenced
      ORDER BY o.start_offset DESC LIMIT 1) o
      WHERE o.end_offset >= m.start_offset"""

FINISH: Final = DriverStatement(f"""
WITH found AS MATERIALIZED (
  SELECT leader_epochs FROM remote_log_segment
  WHERE segment_id = %(segment_id)s AND topic_id = %(topic_id)s AND partition = %(partition)s AND state = {_STARTED}),
mine AS MATERIALIZED (
  SELECT e.leader_epoch, e.start_offset, e.end_offset FROM found, unnest(found.leader_epochs) AS own (epoch)
  JOIN remote_log_segment_epoch e ON e.topic_id = %(topic_id)s AND e.partition = %(partition)s
    AND e.leader_epoch = own.epoch AND e.segment_id = %(segment_id)s),
taken AS (
  {_TAKE}
    AND p.delete_state IS DISTINCT FROM {_FORGOTTEN}
    AND EXISTS (SELECT FROM mine)
    AND NOT EXISTS ({_MEETS_ANOTHER})
  RETURNING p.version),
finished AS (
  UPDATE remote_log_segment SET state = {_FINISHED}, broker_id = %(broker_id)s, event_timestamp_ms = %(event_timestamp_ms)s,
    custom_metadata = %(custom_metadata)s::bytea, version = taken.version, updated_at_ms = %(now_ms)s,
    writer_leader_epoch = coalesce(%(leader_epoch)s::int, writer_leader_epoch)
  FROM taken WHERE segment_id = %(segment_id)s),
raised AS (
  INSERT INTO remote_log_epoch AS h (topic_id, partition, leader_epoch, highest_offset)
  SELECT %(topic_id)s, %(partition)s, mine.leader_epoch, mine.end_offset FROM taken, mine
  ON CONFLICT (topic_id, partition, leader_epoch)
  DO UPDATE SET highest_offset = greatest(h.highest_offset, excluded.highest_offset)),
answering AS (
  UPDATE remote_log_segment_epoch e SET referenced = true, finished_version = taken.version FROM taken, mine
  WHERE e.topic_id = %(topic_id)s AND e.partition = %(partition)s AND e.leader_epoch = mine.leader_epoch
    AND e.segment_id = %(segment_id)s)
INSERT INTO remote_log_segment_event (topic_id, partition, version, timestamp_ms, segment_id, from_state, to_state,
  broker_id, event_timestamp_ms, custom_metadata, leader_epoch, reason, trace_id)
SELECT %(topic_id)s, %(partition)s, version, %(now_ms)s, %(segment_id)s, {_STARTED}, {_FINISHED}, %(broker_id)s,
  %(event_timestamp_ms)s, %(custom_metadata)s::bytea, %(leader_epoch)s::int, %(reason)s::text, %(trace_id)s::text
FROM taken
RETURNING version
""")
"""Moves a segment from COPY_SEGMENT_STARTED to COPY_SEGMENT_FINISHED, to answer look-ups from now on."""


async def has_effect(
    connection: AsyncConnection, statement: DriverStatement, values: Mapping[str, Any]
) -> bool:
    """Runs one of the statements; False: nothing has changed."""
    try:
        return bool(await statement.rows(connection, values))
    except IntegrityError:
        # Another partition's segment was added under the same id at the same moment.
        return False


def origin_values(leader_epoch: int | None, trace_id: str, now_ms: int) -> dict[str, Any]:
    """Parameters of both statements: on whose behalf, in which trace, when."""
    return {
        "leader_epoch": None if leader_epoch is None else Int4(leader_epoch),
        "trace_id": trace_id,
        "now_ms": Int8(now_ms),
    }


def add_values(metadata: RemoteLogSegmentMetadata) -> dict[str, Any]:
    """Parameters of `ADD`, without those of `origin_values`."""
    ranges = metadata.epoch_ranges()
    return {
        **_ids(metadata.segment_id),
        "start_offset": Int8(metadata.start_offset),
        "end_offset": Int8(metadata.end_offset),
        "broker_id": Int4(metadata.broker_id),
        "max_timestamp_ms": Int8(metadata.max_timestamp_ms),
        "event_timestamp_ms": Int8(metadata.event_timestamp_ms),
        "segment_size_bytes": Int8(metadata.segment_size_bytes),
        "custom_metadata": metadata.custom_metadata,
        "txn_index_empty": metadata.txn_index_empty,
        "epochs": [Int4(epoch) for epoch in ranges],
        "epoch_starts": [Int8(start) for start, _ in ranges.values()],
        "epoch_ends": [Int8(end) for _, end in ranges.values()],
    }


def is_plain_finish(update: RemoteLogSegmentMetadataUpdate) -> bool:
    """Whether an update may be one for `FINISH`."""
    custom_metadata = update.custom_metadata or b""
    return (
        update.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        and len(custom_metadata) <= MAX_CUSTOM_METADATA_BYTES
    )


def finish_values(update: RemoteLogSegmentMetadataUpdate) -> dict[str, Any]:
    """Parameters of `FINISH`, without those of `origin_values`."""
    return {
        **_ids(update.segment_id),
        "broker_id": Int4(update.broker_id),
        "event_timestamp_ms": Int8(update.event_timestamp_ms),
        "custom_metadata": update.custom_metadata,
        "reason": update.reason,
    }


def _ids(segment_id: RemoteLogSegmentId) -> dict[str, Any]:
    key = partition_key(segment_id.topic_id_partition)
    return {
        "segment_id": segment_uuid(segment_id),
        "topic_id": key.topic_id,
        # One size of integers, or each would make a prepared statement of its own.
        "partition": Int4(key.partition),
    }
