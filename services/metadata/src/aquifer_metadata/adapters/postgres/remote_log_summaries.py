"""Many partitions in a few numbers, with one statement (see `PartitionSummaries`)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from aquifer_core.errors import InvalidRequestError
from aquifer_core.ids import TopicIdPartition
from aquifer_core.partition_summary import MAX_SUMMARIES, PartitionSummary
from aquifer_core.state import RemoteLogSegmentState, RemotePartitionDeleteState
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.driver_statement import DriverStatement
from aquifer_metadata.adapters.postgres.remote_log_rows import partition_key

_FINISHED = int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
_FORGOTTEN = int(RemotePartitionDeleteState.DELETE_PARTITION_FINISHED)
_NO_VERSION: Final = -1

# Segments are only counted where the caller does not know the version: one look into the primary key is all that an unchanged
# partition costs.
SUMMARIES: Final = DriverStatement(f"""
SELECT coalesce(p.version, 0), CASE WHEN p.delete_state IS DISTINCT FROM {_FORGOTTEN} THEN p.earliest_log_offset END, s.segments, s.unfinished, s.oldest_ms, s.highest_end,
  e.epochs, e.highest
FROM unnest(%(topic_ids)s::uuid[], %(partitions)s::int[], %(known)s::bigint[])
  WITH ORDINALITY AS q (topic_id, partition, known, number)
LEFT JOIN LATERAL (
  SELECT p.version, p.earliest_log_offset, p.delete_state FROM remote_log_partition p
  WHERE p.topic_id = q.topic_id AND p.partition = q.partition LIMIT 1) p ON true
LEFT JOIN LATERAL (
  SELECT count(*) AS segments, count(*) FILTER (WHERE s.state <> {_FINISHED}) AS unfinished,
    min(CASE WHEN s.max_timestamp_ms >= 0 THEN s.max_timestamp_ms ELSE s.event_timestamp_ms END) AS oldest_ms,
    max(s.end_offset) AS highest_end
  FROM remote_log_segment s
  WHERE s.topic_id = q.topic_id AND s.partition = q.partition
    AND p.version <> q.known AND p.delete_state IS DISTINCT FROM {_FORGOTTEN}) s ON true
LEFT JOIN LATERAL (
  SELECT array_agg(e.leader_epoch ORDER BY e.leader_epoch) AS epochs,
    array_agg(e.highest_offset ORDER BY e.leader_epoch) AS highest
  FROM remote_log_epoch e
  WHERE e.topic_id = q.topic_id AND e.partition = q.partition
    AND p.version <> q.known AND p.delete_state IS DISTINCT FROM {_FORGOTTEN}) e ON true
ORDER BY q.number
""")


class RemoteLogSummaries:
    """Counts, and changes nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(
        self, partitions: Sequence[tuple[TopicIdPartition, int | None]]
    ) -> list[PartitionSummary | None]:
        """See `PartitionSummaries.partition_summaries`."""
        if len(partitions) > MAX_SUMMARIES:
            raise InvalidRequestError(
                f"{len(partitions)} partitions in one question, at most {MAX_SUMMARIES} are allowed"
            )
        values = summary_values(partitions)

        async def work(connection: AsyncConnection) -> list[Sequence[Any]]:
            return await SUMMARIES.rows(connection, values)

        rows = await self._database.read(work)
        return [
            None if row[0] == known else _summary(row)
            for row, (_, known) in zip(rows, partitions, strict=True)
        ]


def summary_values(partitions: Sequence[tuple[TopicIdPartition, int | None]]) -> Mapping[str, Any]:
    """Parameters of `SUMMARIES`."""
    return {
        "topic_ids": [partition_key(tip).topic_id for tip, _ in partitions],
        "partitions": [tip.partition for tip, _ in partitions],
        "known": [_NO_VERSION if known is None else known for _, known in partitions],
    }


def _summary(row: Sequence[Any]) -> PartitionSummary:
    version, earliest, segments, unfinished, oldest_ms, highest_end, epochs, highest = row
    return PartitionSummary(
        version=version,
        earliest_log_offset=earliest,
        segments=segments,
        unfinished_segments=unfinished,
        oldest_timestamp_ms=-1 if oldest_ms is None else oldest_ms,
        highest_end_offset=-1 if highest_end is None else highest_end,
        highest_offsets=dict(zip(epochs or (), highest or (), strict=True)),
    )
