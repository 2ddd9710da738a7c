"""Deletions of partitions: those to be done, and those that the deletion of a topic, or the end of its tiering, begins."""

import uuid
from collections.abc import AsyncIterator
from typing import Any

from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_core.ports import Clock
from aquifer_core.segment import RemotePartitionDeleteMetadata
from aquifer_core.state import RemotePartitionDeleteState
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.remote_log_rows import Columns

_MARKED = int(RemotePartitionDeleteState.DELETE_PARTITION_MARKED)
_STARTED = int(RemotePartitionDeleteState.DELETE_PARTITION_STARTED)

_NOBODY = -1
_ANY_TIME_MS = 2**63 - 1
FIRST_PAGE: dict[str, Any] = {
    "after_topic_id": uuid.UUID(int=0),
    "after_partition": -1,
    "marked_until_ms": _ANY_TIME_MS,
}

# The condition is that of the index. Deletions recorded by an earlier version have neither time nor broker.
UNFINISHED = text(f"""
SELECT topic_id, partition, topic, delete_state, coalesce(delete_event_timestamp_ms, 0) AS event_timestamp_ms,
  coalesce(delete_broker_id, {_NOBODY}) AS broker_id
FROM remote_log_partition
WHERE (delete_state = {_MARKED} OR delete_state = {_STARTED})
  AND (topic_id, partition) > (:after_topic_id, :after_partition)
  AND (delete_state = {_STARTED} OR coalesce(delete_event_timestamp_ms, 0) <= :marked_until_ms)
ORDER BY topic_id, partition LIMIT :page_size
""")

# Rows are taken in the order that `see_leaders` takes them. A row that another transaction adds meanwhile is met as well.
_MARK_TOPIC = text(f"""
WITH known AS (
  SELECT partition FROM remote_log_partition WHERE topic_id = :topic_id
  UNION
  SELECT partition FROM topic_partition WHERE topic_id = :topic_id AND :tiered),
marked AS (
  INSERT INTO remote_log_partition AS p (topic_id, partition, topic, highest_leader_epoch, version, delete_state,
    delete_event_timestamp_ms, delete_broker_id)
  SELECT :topic_id, partition, :topic, -1, 1, {_MARKED}, :now_ms, {_NOBODY} FROM known ORDER BY partition
  ON CONFLICT (topic_id, partition) DO UPDATE
  SET version = p.version + 1, delete_state = excluded.delete_state,
    delete_event_timestamp_ms = excluded.delete_event_timestamp_ms, delete_broker_id = excluded.delete_broker_id
  WHERE p.delete_state IS NULL
  RETURNING p.topic_id, p.partition, p.version)
INSERT INTO remote_log_segment_event (topic_id, partition, version, timestamp_ms, broker_id, event_timestamp_ms, reason,
  trace_id, delete_state)
SELECT topic_id, partition, version, :now_ms, {_NOBODY}, :now_ms, :reason, :trace_id, {_MARKED} FROM marked
RETURNING partition
""")


class RemoteLogDeletions:
    """Finds the deletions that have not finished."""

    def __init__(
        self, database: Database, clock: Clock, *, page_size: int, undelete_grace_ms: int = 0
    ) -> None:
        self._database = database
        self._clock = clock
        self._page_size = page_size
        self._undelete_grace_ms = undelete_grace_ms

    async def unfinished(self) -> AsyncIterator[RemotePartitionDeleteMetadata]:
        """See `RemoteLogMetadataManager.list_partition_deletions`; page by page, in memory one at a time.

        What was marked a moment ago is left out as long as the mark may be taken back.
        """
        after = dict(FIRST_PAGE)
        if self._undelete_grace_ms:
            after["marked_until_ms"] = self._clock.now_ms() - self._undelete_grace_ms
        while True:
            page = await self._page(after)
            for row in page:
                yield _deletion(row)
            if len(page) < self._page_size:
                return
            last = page[-1]
            after |= {"after_topic_id": last["topic_id"], "after_partition": last["partition"]}

    async def _page(self, after: dict[str, Any]) -> list[Columns]:
        values = after | {"page_size": self._page_size}

        async def work(connection: AsyncConnection) -> list[Columns]:
            return list((await connection.execute(UNFINISHED, values)).mappings())

        return await self._database.read(work)


async def mark_topic(
    connection: AsyncConnection,
    topic_id: uuid.UUID,
    topic: str,
    *,
    tiered: bool,
    now_ms: int,
    trace_id: str,
    reason: str = "topic deleted",
) -> int:
    """Marks the partitions of a topic whose remote data is to go; from the commit on no copy can be added to them.

    Args:
        connection: of the transaction that deletes the topic, before its partitions go, or ends its tiering.
        topic_id: the topic.
        topic: its name.
        tiered: its partitions may be copied: also those are marked of which nothing is known yet, since a first copy may be on
            its way.
        now_ms: wall clock.
        trace_id: for the history.
        reason: likewise.

    Returns:
        How many were marked.
    """
    values = {
        "topic_id": topic_id,
        "topic": topic,
        "tiered": tiered,
        "now_ms": now_ms,
        "trace_id": trace_id,
        "reason": reason,
    }
    return len((await connection.execute(_MARK_TOPIC, values)).all())


def _deletion(row: Columns) -> RemotePartitionDeleteMetadata:
    return RemotePartitionDeleteMetadata(
        topic_id_partition=TopicIdPartition(
            KafkaUuid(row["topic_id"].bytes), row["topic"], row["partition"]
        ),
        state=RemotePartitionDeleteState(row["delete_state"]),
        event_timestamp_ms=row["event_timestamp_ms"],
        broker_id=row["broker_id"],
    )
