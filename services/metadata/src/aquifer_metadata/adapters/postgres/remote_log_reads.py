"""Questions about remote segments. Each is one statement."""

import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any

from aquifer_core.ids import KafkaUuid, RemoteLogSegmentId, TopicIdPartition
from aquifer_core.leader_epoch import (
    build_filtered_leader_epoch_map,
    is_segment_within_leader_epochs,
)
from aquifer_core.ports import SegmentEvent
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState, RemotePartitionDeleteState
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.remote_log_lookups import FLOOR
from aquifer_metadata.adapters.postgres.remote_log_rows import (
    SEGMENT_COLUMNS,
    Columns,
    partition_key,
    segment_from_row,
    segment_uuid,
)

_FORGOTTEN = int(RemotePartitionDeleteState.DELETE_PARTITION_FINISHED)
_FINISHED = int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
_NO_END = 2**63 - 1
_FIRST_ID = uuid.UUID(bytes=KafkaUuid.ZERO.raw)
_LAST_ID = uuid.UUID(int=2**128 - 1)

_NOT_FORGOTTEN = f"""NOT EXISTS (
  SELECT FROM remote_log_partition p
  WHERE p.topic_id = :topic_id AND p.partition = :partition AND p.delete_state = {_FORGOTTEN})"""

_FLOOR = FLOOR.format(
    topic_id=":topic_id", partition=":partition", leader_epoch=":leader_epoch", offset=":offset"
)

HIGHEST = text(f"""
SELECT highest_offset FROM remote_log_epoch
WHERE topic_id = :topic_id AND partition = :partition AND leader_epoch = :leader_epoch AND {_NOT_FORGOTTEN}
""")

PAGE = text(f"""
SELECT {SEGMENT_COLUMNS} FROM remote_log_segment s
WHERE s.topic_id = :topic_id AND s.partition = :partition
  AND (s.start_offset, s.segment_id) > (:after_offset, :after_id) AND {_NOT_FORGOTTEN}
ORDER BY s.start_offset, s.segment_id LIMIT :page_size
""")

_IDS_OF_EPOCH = text(f"""
SELECT s.segment_id FROM remote_log_segment_epoch e JOIN remote_log_segment s ON s.segment_id = e.segment_id
WHERE e.topic_id = :topic_id AND e.partition = :partition AND e.leader_epoch = :leader_epoch AND {_NOT_FORGOTTEN}
ORDER BY s.start_offset, s.segment_id
""")

_BY_IDS = text(f"""
SELECT {SEGMENT_COLUMNS} FROM remote_log_segment s WHERE s.segment_id = ANY(:ids)
ORDER BY s.start_offset, s.segment_id
""")

_SIZE = text(f"""
SELECT coalesce(sum(s.segment_size_bytes), 0)::bigint
FROM remote_log_segment_epoch e JOIN remote_log_segment s ON s.segment_id = e.segment_id
WHERE e.topic_id = :topic_id AND e.partition = :partition AND e.leader_epoch = :leader_epoch AND {_NOT_FORGOTTEN}
""")

_NEXT_WITH_TXN_INDEX = text(f"""
WITH first AS ({_FLOOR}),
found AS (
  SELECT e.segment_id, e.start_offset FROM first, remote_log_segment_epoch e
  WHERE first.end_offset >= :offset
    AND e.topic_id = :topic_id AND e.partition = :partition AND e.leader_epoch = :leader_epoch
    AND e.start_offset >= first.start_offset AND e.referenced AND NOT e.txn_index_empty
  ORDER BY e.start_offset LIMIT 1),
chain AS (
  SELECT e.start_offset, lag(e.end_offset) OVER (ORDER BY e.start_offset) AS reached
  FROM first, found, remote_log_segment_epoch e
  WHERE e.topic_id = :topic_id AND e.partition = :partition AND e.leader_epoch = :leader_epoch
    AND e.start_offset BETWEEN first.start_offset AND found.start_offset AND e.referenced)
SELECT {SEGMENT_COLUMNS} FROM found JOIN remote_log_segment s ON s.segment_id = found.segment_id
WHERE {_NOT_FORGOTTEN} AND NOT EXISTS (SELECT FROM chain WHERE start_offset > reached + 1)
""")

_BY_TIMESTAMP = text(f"""
SELECT {SEGMENT_COLUMNS} FROM remote_log_segment s
WHERE s.topic_id = :topic_id AND s.partition = :partition AND s.state = {_FINISHED}
  AND s.max_timestamp_ms >= :timestamp_ms AND s.end_offset >= :min_end_offset AND {_NOT_FORGOTTEN}
  AND s.start_offset >= :after_start AND (s.start_offset, -s.end_offset, s.segment_id) > (:after_start, -CAST(:after_end AS bigint), :after_id)
ORDER BY s.start_offset, s.end_offset DESC, s.segment_id LIMIT :page_size
""")

_EARLIEST = text(f"""
SELECT earliest_log_offset FROM remote_log_partition
WHERE topic_id = :topic_id AND partition = :partition AND delete_state IS DISTINCT FROM {_FORGOTTEN}
""")

_HISTORY = text("""
SELECT sequence, from_state, to_state, broker_id, leader_epoch, reason, trace_id, timestamp_ms
FROM remote_log_segment_event
WHERE segment_id = :segment_id AND topic_id = :topic_id AND partition = :partition
ORDER BY sequence
""")

_MATCHES_PER_READ = 32


class RemoteLogReads:
    """The reading half of the metadata of remote segments."""

    def __init__(self, database: Database, *, page_size: int) -> None:
        self._database = database
        self._page_size = page_size

    async def highest_offset(self, tip: TopicIdPartition, leader_epoch: int) -> int | None:
        """See `RemoteLogMetadataManager.highest_offset_for_epoch`."""
        rows = await self._rows(HIGHEST, tip, leader_epoch=leader_epoch)
        return rows[0]["highest_offset"] if rows else None

    async def segments(
        self, tip: TopicIdPartition, leader_epoch: int | None = None, *, from_offset: int = 0
    ) -> AsyncIterator[RemoteLogSegmentMetadata]:
        """See `RemoteLogMetadataManager.list_remote_log_segments`; page by page, in memory one at a time.

        Without leader epoch from an offset on, see `SegmentListings`.
        """
        pages = (
            self._pages(tip, from_offset)
            if leader_epoch is None
            else self._pages_of(tip, leader_epoch)
        )
        async for page in pages:
            for row in page:
                yield segment_from_row(tip, row)

    async def size(self, tip: TopicIdPartition, leader_epoch: int) -> int:
        """See `RemoteLogMetadataManager.remote_log_size`."""
        [row] = await self._rows(_SIZE, tip, leader_epoch=leader_epoch)
        return int(row["coalesce"])

    async def next_with_txn_index(
        self, tip: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """See `RemoteLogMetadataManager.next_segment_with_txn_index`."""
        rows = await self._rows(_NEXT_WITH_TXN_INDEX, tip, leader_epoch=leader_epoch, offset=offset)
        return segment_from_row(tip, rows[0]) if rows else None

    async def by_timestamp(
        self,
        tip: TopicIdPartition,
        lineage: Mapping[int, int],
        timestamp_ms: int,
        min_end_offset: int,
    ) -> RemoteLogSegmentMetadata | None:
        """See `RemoteLogMetadataManager.find_segment_for_timestamp`."""
        filtered = build_filtered_leader_epoch_map(lineage)
        after: dict[str, Any] = {"after_start": -1, "after_end": 0, "after_id": _FIRST_ID}
        while True:
            rows = await self._rows(
                _BY_TIMESTAMP,
                tip,
                timestamp_ms=timestamp_ms,
                min_end_offset=min_end_offset,
                page_size=_MATCHES_PER_READ,
                **after,
            )
            for row in rows:
                found = segment_from_row(tip, row)
                if is_segment_within_leader_epochs(
                    segment_leader_epochs=found.segment_leader_epochs,
                    end_offset=found.end_offset,
                    log_end_offset=_NO_END,
                    lineage=filtered,
                ):
                    return found
            if len(rows) < _MATCHES_PER_READ:
                return None
            # Not a number of rows: those before may be deleted meanwhile.
            after = {
                "after_start": found.start_offset,
                "after_end": found.end_offset,
                "after_id": segment_uuid(found.segment_id),
            }

    async def earliest_log_offset(self, tip: TopicIdPartition) -> int | None:
        """See `RemoteLogMetadataManager.earliest_log_offset`."""
        rows = await self._rows(_EARLIEST, tip)
        return rows[0]["earliest_log_offset"] if rows else None

    async def history(self, segment_id: RemoteLogSegmentId) -> list[SegmentEvent]:
        """See `RemoteLogMetadataManager.segment_history`."""
        rows = await self._rows(
            _HISTORY, segment_id.topic_id_partition, segment_id=segment_uuid(segment_id)
        )
        return [_event(segment_id, row) for row in rows]

    async def _pages(self, tip: TopicIdPartition, from_offset: int) -> AsyncIterator[list[Columns]]:
        after_offset, after_id = from_offset - 1, _LAST_ID
        while True:
            page = await self._rows(
                PAGE,
                tip,
                after_offset=after_offset,
                after_id=after_id,
                page_size=self._page_size,
            )
            yield page
            if len(page) < self._page_size:
                return
            after_offset, after_id = page[-1]["start_offset"], page[-1]["segment_id"]

    async def _pages_of(
        self, tip: TopicIdPartition, leader_epoch: int
    ) -> AsyncIterator[list[Columns]]:
        rows = await self._rows(_IDS_OF_EPOCH, tip, leader_epoch=leader_epoch)
        ids = [row["segment_id"] for row in rows]
        for first in range(0, len(ids), self._page_size):
            yield await self._rows(_BY_IDS, tip, ids=ids[first : first + self._page_size])

    async def _rows(
        self, statement: Any, tip: TopicIdPartition, **parameters: Any
    ) -> list[Columns]:
        values = partition_key(tip).values | parameters

        async def work(connection: AsyncConnection) -> list[Columns]:
            return list((await connection.execute(statement, values)).mappings())

        return await self._database.read(work)


def _event(segment_id: RemoteLogSegmentId, row: Columns) -> SegmentEvent:
    before = row["from_state"]
    return SegmentEvent(
        sequence=row["sequence"],
        segment_id=segment_id,
        from_state=None if before is None else RemoteLogSegmentState(before),
        to_state=RemoteLogSegmentState(row["to_state"]),
        broker_id=row["broker_id"],
        leader_epoch=row["leader_epoch"],
        reason=row["reason"],
        trace_id=row["trace_id"],
        timestamp_ms=row["timestamp_ms"],
    )
