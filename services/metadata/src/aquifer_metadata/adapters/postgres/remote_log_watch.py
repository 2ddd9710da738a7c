"""Changes of a partition's remote segments as they happen, from the history."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Final

from aquifer_core.errors import OffsetOutOfRangeError
from aquifer_core.ids import TopicIdPartition
from aquifer_core.ports import PartitionChange
from aquifer_core.state import RemotePartitionDeleteState
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres.change_signal import (
    ChangeSignal,
    Subscription,
    partition_signal,
)
from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.remote_log_rows import (
    SEGMENT_COLUMNS,
    Columns,
    gone_segment_row,
    partition_key,
    segment_from_row,
)
from aquifer_metadata.adapters.postgres.watch_poll import WatchPoll

_FORGOTTEN = int(RemotePartitionDeleteState.DELETE_PARTITION_FINISHED)

_READS_AT_ONCE: Final = 4

_CURRENT_VERSION = text("""
SELECT version, history_from_version FROM remote_log_partition WHERE topic_id = :topic_id AND partition = :partition
""")

_PRESENT_SEGMENTS = text(f"""
SELECT s.version, {SEGMENT_COLUMNS} FROM remote_log_segment s
WHERE s.topic_id = :topic_id AND s.partition = :partition AND s.version > :after AND s.version <= :until
  AND NOT EXISTS (
    SELECT FROM remote_log_partition p
    WHERE p.topic_id = :topic_id AND p.partition = :partition AND p.delete_state = {_FORGOTTEN})
ORDER BY s.version LIMIT :page_size
""")

_PRESENT_STATE = text(f"""
(SELECT e.version, e.delete_state, NULL::bigint AS earliest_log_offset FROM remote_log_segment_event e
 JOIN remote_log_partition p ON p.topic_id = e.topic_id AND p.partition = e.partition AND p.delete_state = e.delete_state
 WHERE e.topic_id = :topic_id AND e.partition = :partition AND e.version <= :until
 ORDER BY e.version DESC LIMIT 1)
UNION ALL
(SELECT e.version, NULL, e.earliest_log_offset FROM remote_log_segment_event e
 JOIN remote_log_partition p ON p.topic_id = e.topic_id AND p.partition = e.partition
 WHERE e.topic_id = :topic_id AND e.partition = :partition AND e.version <= :until
   AND e.earliest_log_offset = p.earliest_log_offset AND p.delete_state IS DISTINCT FROM {_FORGOTTEN}
 ORDER BY e.version DESC LIMIT 1)
ORDER BY version
""")

_EVENTS = text("""
SELECT e.version, e.segment_id, e.to_state, e.broker_id, e.event_timestamp_ms, e.custom_metadata, e.delete_state,
  e.earliest_log_offset, coalesce(to_jsonb(s) - 'custom_metadata', e.gone_segment, (
    SELECT g.gone_segment FROM remote_log_segment_event g
    WHERE g.segment_id = e.segment_id AND g.gone_segment IS NOT NULL LIMIT 1)) AS segment
FROM remote_log_segment_event e LEFT JOIN remote_log_segment s ON s.segment_id = e.segment_id
WHERE e.topic_id = :topic_id AND e.partition = :partition AND e.version > :after
ORDER BY e.version LIMIT :page_size
""")


class RemoteLogWatch:
    """Streams of changes that can be resumed from any version."""

    def __init__(
        self, database: Database, signal: ChangeSignal, *, poll_s: float, page_size: int
    ) -> None:
        self._database = database
        self._signal = signal
        self._poll = WatchPoll(database, signal, poll_s=poll_s)
        self._page_size = page_size
        # Thousands of watches that begin at once, after a restart, leave connections to everybody else.
        self._reads = asyncio.Semaphore(_READS_AT_ONCE)

    async def changes(
        self, tip: TopicIdPartition, from_version: int
    ) -> AsyncIterator[PartitionChange]:
        """See `RemoteLogMetadataManager.watch_partition`."""
        await self._poll.run()
        with self._signal.subscribe(partition_signal(tip), polled=True) as subscription:
            until, history_from = await self._versions(tip)
            if 0 < from_version < history_from:
                raise OffsetOutOfRangeError(
                    f"changes of {tip} up to version {history_from} have left the history, watch from 0",
                    metadata={"offset": str(from_version)},
                )
            with self._poll.watching(tip, until):
                if from_version == 0:
                    async for change in self._present(tip, until):
                        yield change
                version = from_version or until
                if version >= until:
                    await subscription.wait()
                events = self._events(tip, version, subscription)
                async with aclosing(events):
                    async for change in events:
                        yield change

    async def _events(
        self, tip: TopicIdPartition, version: int, subscription: Subscription
    ) -> AsyncGenerator[PartitionChange, None]:
        """What the history has after a version, and then what is added to it."""
        while True:
            rows = await self._rows(_EVENTS, tip, after=version, page_size=self._page_size)
            for row in rows:
                version = row["version"]
                changed = _change(tip, row)
                if changed is not None:
                    yield changed
            if not rows:
                await subscription.wait()

    async def _present(self, tip: TopicIdPartition, until: int) -> AsyncIterator[PartitionChange]:
        """What exists now, in the order of versions. Segments that change meanwhile come with their later version."""
        waiting = deque(
            _partition_change(row) for row in await self._rows(_PRESENT_STATE, tip, until=until)
        )
        after = 0
        while True:
            rows = await self._rows(
                _PRESENT_SEGMENTS, tip, after=after, until=until, page_size=self._page_size
            )
            for row in rows:
                after = row["version"]
                while waiting and waiting[0].version < after:
                    yield waiting.popleft()
                yield PartitionChange(version=after, segment=segment_from_row(tip, row))
            if len(rows) < self._page_size:
                break
        for change in waiting:
            yield change

    async def _versions(self, tip: TopicIdPartition) -> tuple[int, int]:
        """The version now, and the one up to which changes may have been pruned."""
        rows = await self._rows(_CURRENT_VERSION, tip)
        return (rows[0]["version"], rows[0]["history_from_version"] or 0) if rows else (0, 0)

    async def _rows(
        self, statement: Any, tip: TopicIdPartition, **parameters: Any
    ) -> list[Columns]:
        values = partition_key(tip).values | parameters

        async def work(connection: AsyncConnection) -> list[Columns]:
            return list((await connection.execute(statement, values)).mappings())

        async with self._reads:
            return await self._database.read(work)


def _change(tip: TopicIdPartition, row: Columns) -> PartitionChange | None:
    """A line of the history as a change; None for a segment that was forgotten together with its partition."""
    if row["segment_id"] is None:
        return _partition_change(row)
    if row["segment"] is None:
        return None
    changing = {
        "state": row["to_state"],
        "broker_id": row["broker_id"],
        "event_timestamp_ms": row["event_timestamp_ms"],
        "custom_metadata": row["custom_metadata"],
    }
    segment = segment_from_row(tip, gone_segment_row(row["segment"], changing))
    return PartitionChange(version=row["version"], segment=segment)


def _partition_change(row: Columns) -> PartitionChange:
    state = row["delete_state"]
    return PartitionChange(
        version=row["version"],
        delete_state=None if state is None else RemotePartitionDeleteState(state),
        earliest_log_offset=row["earliest_log_offset"],
    )
