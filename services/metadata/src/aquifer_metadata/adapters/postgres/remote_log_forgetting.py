"""Forgetting the segments of partitions whose deletion has finished, in batches that hold locks for a moment only."""

from typing import Any

from aquifer_core.ids import TopicIdPartition
from aquifer_core.ports import Clock
from aquifer_core.state import RemoteLogSegmentState, RemotePartitionDeleteState
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.remote_log_rows import PartitionKey, partition_key

_FORGOTTEN = int(RemotePartitionDeleteState.DELETE_PARTITION_FINISHED)
_GONE = int(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)

# Whoever comes late finds a partition that takes segments again, and leaves it alone.
_HELD = f"""held AS MATERIALIZED (
  SELECT FROM remote_log_partition
  WHERE topic_id = :topic_id AND partition = :partition AND delete_state = {_FORGOTTEN} FOR UPDATE)"""

_FORGET_BATCH = text(f"""
WITH {_HELD},
batch AS (
  SELECT segment_id, leader_epochs FROM remote_log_segment
  WHERE EXISTS (SELECT FROM held) AND topic_id = :topic_id AND partition = :partition
  ORDER BY start_offset, segment_id LIMIT :batch_size FOR UPDATE),
epochs AS (
  DELETE FROM remote_log_segment_epoch e
  USING (SELECT segment_id, unnest(leader_epochs) AS epoch FROM batch) b
  WHERE e.topic_id = :topic_id AND e.partition = :partition AND e.leader_epoch = b.epoch
    AND e.segment_id = b.segment_id),
removed AS (
  DELETE FROM remote_log_segment s USING batch WHERE s.segment_id = batch.segment_id
  RETURNING s.segment_id, s.state, s.broker_id, s.event_timestamp_ms)
INSERT INTO remote_log_segment_event (topic_id, partition, version, timestamp_ms, segment_id, from_state, to_state,
  broker_id, event_timestamp_ms, reason, trace_id)
SELECT :topic_id, :partition, 0, :now_ms, segment_id, state, {_GONE}, broker_id, event_timestamp_ms, 'partition deleted', ''
FROM removed
RETURNING segment_id
""")

_FORGET_OFFSETS = text(f"""
WITH {_HELD}
DELETE FROM remote_log_epoch
WHERE topic_id = :topic_id AND partition = :partition AND EXISTS (SELECT FROM held)
""")

_LEFT_OVER = text(f"""
SELECT p.topic_id, p.partition FROM remote_log_partition p
WHERE p.delete_state = {_FORGOTTEN} AND EXISTS (
  SELECT FROM remote_log_segment s WHERE s.topic_id = p.topic_id AND s.partition = p.partition)
LIMIT 100
""")


class RemoteLogForgetting:
    """Removes the rows of partitions that look-ups refuse already. Their events have version 0: no watch shows them."""

    def __init__(self, database: Database, clock: Clock, *, batch_size: int) -> None:
        self._database = database
        self._clock = clock
        self._batch_size = batch_size

    async def forget(self, tip: TopicIdPartition) -> None:
        """Removes everything about a partition whose deletion has finished; idempotent."""
        await self._forget(partition_key(tip))

    async def forget_left_over(self) -> int:
        """Goes on where a process ended in the middle; returns how many partitions that concerned."""

        async def work(connection: AsyncConnection) -> list[PartitionKey]:
            rows = await connection.execute(_LEFT_OVER)
            return [PartitionKey(row.topic_id, row.partition) for row in rows]

        keys = await self._database.read(work)
        for key in keys:
            await self._forget(key)
        return len(keys)

    async def _forget(self, key: PartitionKey) -> None:
        values: dict[str, Any] = key.values | {
            "batch_size": self._batch_size,
            "now_ms": self._clock.now_ms(),
        }

        async def batch(connection: AsyncConnection) -> int:
            return len((await connection.execute(_FORGET_BATCH, values)).all())

        async def offsets(connection: AsyncConnection) -> None:
            await connection.execute(_FORGET_OFFSETS, values)

        while await self._database.write(batch) == self._batch_size:
            continue
        await self._database.write(offsets)
