"""How a partition stood at a past time, from its history."""

from collections.abc import AsyncIterator
from typing import Any, Final

from aquifer_core.errors import OffsetOutOfRangeError
from aquifer_core.ids import TopicIdPartition
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.remote_log_rows import (
    Columns,
    gone_segment_row,
    partition_key,
    segment_from_row,
)

_GONE: Final = int(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)

_HISTORY_FROM: Final = text("""
SELECT history_from_ms FROM remote_log_partition WHERE topic_id = :topic_id AND partition = :partition
""")

# What a segment is apart from its state lies in its row, or in the line that its deletion left.
_AT: Final = text(f"""
WITH newest AS (
  SELECT DISTINCT ON (segment_id) segment_id, to_state, broker_id, event_timestamp_ms, custom_metadata
  FROM remote_log_segment_event
  WHERE topic_id = :topic_id AND partition = :partition AND segment_id IS NOT NULL AND timestamp_ms <= :timestamp_ms
  ORDER BY segment_id, sequence DESC),
known AS (
  SELECT n.*, coalesce(to_jsonb(s) - 'custom_metadata', (
    SELECT g.gone_segment FROM remote_log_segment_event g
    WHERE g.segment_id = n.segment_id AND g.gone_segment IS NOT NULL LIMIT 1)) AS segment
  FROM newest n LEFT JOIN remote_log_segment s ON s.segment_id = n.segment_id
  WHERE n.to_state <> {_GONE})
SELECT * FROM known WHERE segment IS NOT NULL ORDER BY (segment ->> 'start_offset')::bigint, segment_id
""")


class RemoteLogPast:
    """Reads the history; for people, not for the paths of data."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def segments_at(
        self, tip: TopicIdPartition, timestamp_ms: int
    ) -> AsyncIterator[RemoteLogSegmentMetadata]:
        """Segments that were not gone, in the states of then, by start offset.

        Raises:
            OffsetOutOfRangeError: the history does not reach back that far.
        """
        values = partition_key(tip).values | {"timestamp_ms": timestamp_ms}

        async def work(connection: AsyncConnection) -> list[Columns]:
            found = await connection.scalar(_HISTORY_FROM, values)
            if found is not None and timestamp_ms < found:
                raise OffsetOutOfRangeError(
                    f"the history of {tip} is whole from {found} ms on, not at {timestamp_ms} ms",
                    metadata={"offset": str(timestamp_ms)},
                )
            return list((await connection.execute(_AT, values)).mappings())

        for row in await self._database.snapshot(work):
            yield segment_from_row(tip, gone_segment_row(row["segment"], _changing(row)))


def _changing(row: Columns) -> dict[str, Any]:
    return {
        "state": row["to_state"],
        "broker_id": row["broker_id"],
        "event_timestamp_ms": row["event_timestamp_ms"],
        "custom_metadata": row["custom_metadata"],
    }
