"""Segments that follow each other, several readers with one statement (see `SegmentRuns`)."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from aquifer_core.errors import AquiferError
from aquifer_core.gathered import GatheredQuestions
from aquifer_core.ids import TopicIdPartition
from aquifer_core.segment_lifecycle import partition_gone
from aquifer_core.segment_run import MAX_RUN_SEGMENTS, SegmentRun, trimmed_run
from aquifer_core.state import RemotePartitionDeleteState
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.driver_statement import DriverStatement
from aquifer_metadata.adapters.postgres.remote_log_lookups import FLOOR
from aquifer_metadata.adapters.postgres.remote_log_rows import (
    FACT_COLUMN_NAMES,
    FACT_COLUMNS,
    partition_key,
    segment_from_row,
)

__all__ = ["RUNS", "RemoteLogRuns", "RunQuestion", "run_values"]

_FORGOTTEN = int(RemotePartitionDeleteState.DELETE_PARTITION_FINISHED)

_FLOOR = FLOOR.format(
    topic_id="q.topic_id",
    partition="q.partition",
    leader_epoch="q.leader_epoch",
    offset="q.log_offset",
)
_OF_PARTITION = "e.topic_id = q.topic_id AND e.partition = q.partition AND e.referenced"
# One look into an index for each part of a question, and one for each segment of its answer. What is too far away for the reader is
# left out here, since a row costs more than anything else.
RUNS: Final = DriverStatement(f"""
SELECT q.number, p.delete_state, t.found, r.first_offset, r.last_offset, {FACT_COLUMNS}
FROM unnest(%(topic_ids)s::uuid[], %(partitions)s::int[], %(leader_epochs)s::int[], %(offsets)s::bigint[], %(max_bytes)s::bigint[])
  WITH ORDINALITY AS q (topic_id, partition, leader_epoch, log_offset, max_bytes, number)
LEFT JOIN LATERAL (
  SELECT p.delete_state FROM remote_log_partition p
  WHERE p.topic_id = q.topic_id AND p.partition = q.partition LIMIT 1) p ON true
LEFT JOIN LATERAL ({_FLOOR}) f ON true
LEFT JOIN LATERAL (
  SELECT EXISTS (
    SELECT FROM remote_log_segment_epoch e
    WHERE {_OF_PARTITION} AND NOT e.txn_index_empty AND e.leader_epoch = q.leader_epoch AND e.start_offset >= f.start_offset
  ) OR EXISTS (
    SELECT FROM remote_log_segment_epoch e
    WHERE {_OF_PARTITION} AND NOT e.txn_index_empty AND e.leader_epoch > q.leader_epoch) AS found) t
  ON f.end_offset >= q.log_offset
LEFT JOIN LATERAL (
  SELECT c.segment_id, c.first_offset, c.last_offset FROM (
    SELECT e.segment_id, e.start_offset AS first_offset, e.end_offset AS last_offset,
      sum(div(s.segment_size_bytes::numeric * (s.end_offset - greatest(q.log_offset, s.start_offset) + 1), s.end_offset - s.start_offset + 1))
        OVER (ORDER BY e.start_offset ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
    FROM (
      SELECT e.segment_id, e.start_offset, e.end_offset FROM remote_log_segment_epoch e
      WHERE {_OF_PARTITION} AND e.leader_epoch = q.leader_epoch AND e.start_offset >= f.start_offset
      ORDER BY e.start_offset LIMIT {MAX_RUN_SEGMENTS}) e
    JOIN remote_log_segment s ON s.segment_id = e.segment_id) c
  WHERE coalesce(c.bytes_before, -1) < q.max_bytes) r ON f.end_offset >= q.log_offset
LEFT JOIN remote_log_segment s ON s.segment_id = r.segment_id
ORDER BY q.number, r.first_offset
""")

_MOST_AT_ONCE: Final = 1
_MOST_TOGETHER: Final = 64
_NO_SEGMENT: Final = SegmentRun(segments=(), may_have_transactions=False)


class RunQuestion(NamedTuple):
    """A partition, a leader epoch, an offset and how far to look."""

    tip: TopicIdPartition
    leader_epoch: int
    offset: int
    max_bytes: int


class RemoteLogRuns:
    """Finds runs, several callers with one statement when they ask at the same time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._gathered: GatheredQuestions[RunQuestion, list[Sequence[Any]]] = GatheredQuestions(
            self._ask,
            most_at_once=_MOST_AT_ONCE,
            most_together=_MOST_TOGETHER,
            # A value that the driver refuses. What the database says of itself is true for all.
            is_of_one=lambda error: not isinstance(error, AquiferError),
        )

    async def find(
        self, tip: TopicIdPartition, leader_epoch: int, offset: int, max_bytes: int
    ) -> SegmentRun:
        """See `SegmentRuns.segment_run`."""
        rows = await self._gathered.answer(RunQuestion(tip, leader_epoch, offset, max_bytes))
        delete_state, has_transactions, first_offset = rows[0][1:4]
        if delete_state == _FORGOTTEN:
            raise partition_gone(tip)
        if first_offset is None:
            return _NO_SEGMENT
        chain = [
            (
                first,
                last,
                segment_from_row(tip, dict(zip(FACT_COLUMN_NAMES, facts, strict=True))),
            )
            for _, _, _, first, last, *facts in rows
        ]
        return SegmentRun(
            segments=tuple(trimmed_run(chain, offset, max_bytes)),
            may_have_transactions=has_transactions,
        )

    async def _ask(self, questions: Sequence[RunQuestion]) -> list[list[Sequence[Any]]]:
        values = run_values(questions)

        async def work(connection: AsyncConnection) -> list[Sequence[Any]]:
            return await RUNS.rows(connection, values)

        answers: list[list[Sequence[Any]]] = [[] for _ in questions]
        for row in await self._database.read(work):
            answers[row[0] - 1].append(row)
        return answers


def run_values(questions: Sequence[RunQuestion]) -> dict[str, Any]:
    """Parameters of `RUNS`."""
    return {
        "topic_ids": [partition_key(question.tip).topic_id for question in questions],
        "partitions": [question.tip.partition for question in questions],
        "leader_epochs": [question.leader_epoch for question in questions],
        "offsets": [question.offset for question in questions],
        "max_bytes": [question.max_bytes for question in questions],
    }
