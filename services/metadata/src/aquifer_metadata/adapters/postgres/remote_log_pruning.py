"""Pruning the history: what has been followed by something newer, and is older than history is kept, goes in small batches."""

from typing import Any, Final

import structlog
from aquifer_core.ports import Clock
from aquifer_core.state import RemoteLogSegmentState
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres.database import Database

logger = structlog.get_logger(__name__)

_GONE: Final = int(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)

# A line stays as long as it says how things stood at any time within the period: the newest of a segment that is not gone, and the one
# that was the newest when the period began. So listings of past times stay whole, and so does what a watch begins with.
PRUNE: Final = text(f"""
WITH batch AS (
  SELECT sequence, topic_id, partition, version, timestamp_ms, segment_id, to_state, delete_state, earliest_log_offset
  FROM remote_log_segment_event WHERE sequence > :after ORDER BY sequence LIMIT :batch_size),
old AS (
  SELECT b.sequence FROM batch b
  LEFT JOIN remote_log_partition p ON p.topic_id = b.topic_id AND p.partition = b.partition
  WHERE b.timestamp_ms < :before_ms AND CASE
    WHEN b.segment_id IS NULL THEN
      b.earliest_log_offset < p.earliest_log_offset OR b.delete_state IS DISTINCT FROM p.delete_state
        AND b.delete_state IS NOT NULL
    ELSE b.to_state = {_GONE} OR EXISTS (
      SELECT FROM remote_log_segment_event n
      WHERE n.segment_id = b.segment_id AND n.sequence > b.sequence AND n.timestamp_ms < :before_ms) END),
removed AS (
  DELETE FROM remote_log_segment_event e USING old WHERE e.sequence = old.sequence
  RETURNING e.topic_id, e.partition, e.version),
concerned AS (
  SELECT p.topic_id, p.partition, r.version FROM remote_log_partition p
  JOIN (SELECT topic_id, partition, max(version) AS version FROM removed GROUP BY topic_id, partition) r
    ON r.topic_id = p.topic_id AND r.partition = p.partition
  ORDER BY p.topic_id, p.partition FOR UPDATE OF p),
noted AS (
  UPDATE remote_log_partition p SET history_from_version = greatest(p.history_from_version, c.version),
    history_from_ms = greatest(p.history_from_ms, :before_ms)
  FROM concerned c WHERE p.topic_id = c.topic_id AND p.partition = c.partition)
SELECT (SELECT max(sequence) FROM batch) AS last_sequence, (SELECT count(*) FROM removed) AS removed,
  coalesce((SELECT min(timestamp_ms) FROM batch) >= :before_ms, true) AS young
""")


class RemoteLogPruning:
    """Keeps the history bounded, whatever the number of changes."""

    def __init__(self, database: Database, clock: Clock, *, kept_ms: int, batch_size: int) -> None:
        """Prepares.

        Args:
            database: with the schema of this service.
            clock: that the history was written by.
            kept_ms: age at which a change may be forgotten.
            batch_size: lines of history looked at in one transaction.
        """
        self._database = database
        self._clock = clock
        self._kept_ms = kept_ms
        self._batch_size = batch_size

    async def prune(self) -> int:
        """Goes through the history once, from its beginning up to what is young; returns how many lines went.

        Any replica may do it at any time: another's batches are simply found done. One that is cut off leaves whole batches.
        """
        before_ms = self._clock.now_ms() - self._kept_ms
        after, total = 0, 0
        while True:
            last_sequence, removed, young = await self._batch(after, before_ms)
            total += removed
            if young or last_sequence is None:
                break
            after = last_sequence
        if total:
            logger.info("history_pruned", lines=total, before_ms=before_ms)
        return total

    async def _batch(self, after: int, before_ms: int) -> tuple[int | None, int, bool]:
        values: dict[str, Any] = {
            "after": after,
            "before_ms": before_ms,
            "batch_size": self._batch_size,
        }

        async def work(connection: AsyncConnection) -> tuple[int | None, int, bool]:
            row = (await connection.execute(PRUNE, values)).one()
            return row.last_sequence, row.removed, row.young

        return await self._database.write(work)
