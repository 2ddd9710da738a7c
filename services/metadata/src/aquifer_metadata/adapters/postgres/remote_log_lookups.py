"""The hottest question: which finished segment holds an offset in a leader epoch."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from aquifer_core.errors import AquiferError
from aquifer_core.gathered import GatheredQuestions
from aquifer_core.ids import TopicIdPartition
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.segment_lifecycle import partition_gone
from aquifer_core.state import RemotePartitionDeleteState
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.driver_statement import DriverStatement
from aquifer_metadata.adapters.postgres.remote_log_rows import (
    FACT_COLUMN_NAMES,
    FACT_COLUMNS,
    partition_key,
    segment_from_row,
)

_FORGOTTEN = int(RemotePartitionDeleteState.DELETE_PARTITION_FINISHED)

FLOOR = """SELECT e.segment_id, e.start_offset, e.end_offset FROM remote_log_segment_epoch e
  WHERE e.topic_id = {topic_id} AND e.partition = {partition} AND e.leader_epoch = {leader_epoch}
    AND e.start_offset <= {offset} AND e.referenced
  ORDER BY e.start_offset DESC LIMIT 1"""
"""Referenced segments of an epoch never cover one another, so the last one that begins at or before an offset reaches furthest."""

_OF_QUESTION = FLOOR.format(
    topic_id="q.topic_id",
    partition="q.partition",
    leader_epoch="q.leader_epoch",
    offset="q.log_offset",
)
# Each part may find one row only, so that the plan is one look into each index per question, however many there are.
LOOKUP: Final = DriverStatement(f"""
SELECT p.delete_state, {FACT_COLUMNS}
FROM unnest(%(topic_ids)s::uuid[], %(partitions)s::int[], %(leader_epochs)s::int[], %(offsets)s::bigint[])
  WITH ORDINALITY AS q (topic_id, partition, leader_epoch, log_offset, number)
LEFT JOIN LATERAL (
  SELECT p.delete_state FROM remote_log_partition p
  WHERE p.topic_id = q.topic_id AND p.partition = q.partition LIMIT 1) p ON true
LEFT JOIN LATERAL ({_OF_QUESTION}) f ON true
LEFT JOIN LATERAL (
  SELECT * FROM remote_log_segment s WHERE s.segment_id = f.segment_id AND f.end_offset >= q.log_offset LIMIT 1) s ON true
ORDER BY q.number
""")

_MOST_AT_ONCE: Final = 1
_MOST_TOGETHER: Final = 64


class Question(NamedTuple):
    """A partition, a leader epoch and an offset."""

    tip: TopicIdPartition
    leader_epoch: int
    offset: int


class RemoteLogLookups:
    """Finds segments by offset, several callers with one statement when they ask at the same time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._gathered: GatheredQuestions[Question, Sequence[Any]] = GatheredQuestions(
            self._ask,
            most_at_once=_MOST_AT_ONCE,
            most_together=_MOST_TOGETHER,
            # A value that the driver refuses. What the database says of itself is true for all.
            is_of_one=lambda error: not isinstance(error, AquiferError),
        )

    async def find(
        self, tip: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """See `RemoteLogMetadataManager.remote_log_segment_metadata`."""
        row = await self._gathered.answer(Question(tip, leader_epoch, offset))
        if row[0] == _FORGOTTEN:
            raise partition_gone(tip)
        if row[1] is None:
            return None
        return segment_from_row(tip, dict(zip(FACT_COLUMN_NAMES, row[1:], strict=True)))

    async def _ask(self, questions: Sequence[Question]) -> Sequence[Sequence[Any]]:
        values = lookup_values(questions)

        async def work(connection: AsyncConnection) -> list[Sequence[Any]]:
            return await LOOKUP.rows(connection, values)

        return await self._database.read(work)


def lookup_values(questions: Sequence[Question]) -> Mapping[str, Any]:
    """Parameters of `LOOKUP`."""
    return {
        "topic_ids": [partition_key(question.tip).topic_id for question in questions],
        "partitions": [question.tip.partition for question in questions],
        "leader_epochs": [question.leader_epoch for question in questions],
        "offsets": [question.offset for question in questions],
    }
