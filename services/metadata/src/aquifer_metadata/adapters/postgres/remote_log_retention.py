"""What retention deletes, decided by a statement over the offset lineage (K-3.4, SR-10, SR-11, SR-17).

The statement says what `aquifer_core.retention.plan_retention` says, and a property test holds the two together. Segments stay in
the database: only those that are chosen travel. A partition with very many segments is walked page by page; what a page needs to
know of those before it is a handful of numbers.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

from aquifer_core.ids import TopicIdPartition
from aquifer_core.leader_epoch import build_filtered_leader_epoch_map
from aquifer_core.ports import (
    RetentionCandidate,
    RetentionPlan,
    RetentionPolicy,
    RetentionReason,
)
from aquifer_core.state import RemoteLogSegmentState, RemotePartitionDeleteState
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.driver_statement import DriverStatement
from aquifer_metadata.adapters.postgres.remote_log_rows import (
    FACT_COLUMN_NAMES,
    FACT_COLUMNS,
    partition_key,
    segment_from_row,
)

_STARTED = int(RemoteLogSegmentState.COPY_SEGMENT_STARTED)
_FINISHED = int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
_DELETING = int(RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
_FORGOTTEN = int(RemotePartitionDeleteState.DELETE_PARTITION_FINISHED)

_MAX_CANDIDATES: Final = 5_000
"""The oldest of a large backlog: what a message holds. The rest is chosen again when these are gone."""

_PAGE_SIZE: Final = 250_000
"""Segments that a statement looks at, so that it ends well within its time limit."""

_LAST_CLASS: Final = 4
_NO_OFFSET: Final = -1

# A segment of one epoch, which is nearly every one, needs no subquery.
_INSIDE = """CASE WHEN cardinality(s.leader_epochs) = 1
    THEN CASE WHEN s.leader_epochs[1] >= q.lineage_epochs[1] THEN s.{column} END
    ELSE (
      SELECT array_agg(r.{value} ORDER BY r.epoch)
      FROM unnest(s.leader_epochs, s.leader_epoch_offsets) AS r (epoch, start)
      WHERE r.epoch >= q.lineage_epochs[1]) END"""

_SHARE = """CASE WHEN {start} <= start_offset AND {end} >= end_offset THEN segment_size_bytes
      ELSE div(segment_size_bytes::numeric * ({end} - {start} + 1), end_offset - start_offset + 1)::bigint END"""
"""Bytes of a part of a segment, as if its offsets were equally large; exact for the whole."""

PLAN: Final = DriverStatement(f"""
WITH q AS (
  SELECT %(lineage_epochs)s::int[] AS lineage_epochs, %(lineage_starts)s::bigint[] AS lineage_starts,
    %(log_start_offset)s::bigint AS log_start_offset, %(log_end_offset)s::bigint AS log_end_offset,
    %(cut_off_ms)s::bigint AS cut_off_ms, %(earliest_epoch)s::int AS earliest_epoch, (
      SELECT min(s.start_offset) FROM remote_log_segment s
      WHERE s.segment_id = ANY(%(in_progress)s::uuid[])
        AND s.topic_id = %(topic_id)s AND s.partition = %(partition)s) AS untouchable_from),
listed AS (
  SELECT s.segment_id, s.start_offset, s.end_offset, s.segment_size_bytes, s.state, s.event_timestamp_ms,
    CASE WHEN s.max_timestamp_ms >= 0 THEN s.max_timestamp_ms ELSE s.event_timestamp_ms END AS age_mark_ms,
    s.leader_epochs[cardinality(s.leader_epochs)] AS last_epoch,
    s.leader_epochs && q.lineage_epochs AS touches_lineage,
    q.untouchable_from IS NULL OR s.start_offset < q.untouchable_from AS touchable,
    {_INSIDE.format(column="leader_epochs", value="epoch")} AS inside_epochs,
    {_INSIDE.format(column="leader_epoch_offsets", value="start")} AS inside_starts
  FROM (
    SELECT s.* FROM remote_log_segment s
    WHERE s.topic_id = %(topic_id)s AND s.partition = %(partition)s AND s.start_offset > %(after)s AND NOT EXISTS (
      SELECT FROM remote_log_partition p
      WHERE p.topic_id = %(topic_id)s AND p.partition = %(partition)s AND p.delete_state = {_FORGOTTEN})
    ORDER BY s.start_offset FETCH FIRST (%(page_size)s) ROWS WITH TIES) s, q),
placed AS MATERIALIZED (
  SELECT l.*, array_position(q.lineage_epochs, l.inside_epochs[1]) AS place, cardinality(l.inside_epochs) AS epochs
  FROM listed l, q),
judged AS MATERIALIZED (
  SELECT l.segment_id, l.start_offset, l.end_offset, l.segment_size_bytes, l.state, l.event_timestamp_ms, l.age_mark_ms,
    l.last_epoch, l.touchable, l.touchable AND l.touches_lineage AND l.state = {_FINISHED} AS walked,
    l.end_offset < q.log_start_offset AND l.last_epoch <= q.lineage_epochs[1] AS below_log_start,
    coalesce(l.state = {_FINISHED} AND l.end_offset < q.log_end_offset
      AND (l.place = 1 OR l.inside_starts[1] >= q.lineage_starts[l.place])
      AND l.inside_epochs[2:] = q.lineage_epochs[l.place + 1:l.place + l.epochs - 1]
      AND l.inside_starts[2:] = q.lineage_starts[l.place + 1:l.place + l.epochs - 1]
      AND (l.place + l.epochs > cardinality(q.lineage_epochs) OR l.end_offset < q.lineage_starts[l.place + l.epochs]),
      false) AS valid
  FROM placed l, q),
reached AS (
  SELECT *, row_number() OVER ordered AS number,
    greatest(max(end_offset) FILTER (WHERE valid) OVER earlier, %(covered_until)s) AS covered_until,
    greatest(max(end_offset) FILTER (WHERE walked AND (valid OR below_log_start)) OVER earlier, %(chosen_until)s)
      AS chosen_until
  FROM judged
  WINDOW ordered AS (ORDER BY start_offset, end_offset, segment_id),
    earlier AS (ORDER BY start_offset, end_offset, segment_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)),
pieces AS (
  SELECT *, greatest(start_offset, covered_until + 1) AS piece_start,
    valid AND end_offset > covered_until AS has_piece
  FROM reached),
weighed AS (
  SELECT *, CASE WHEN has_piece THEN {_SHARE.format(start="piece_start", end="end_offset")} ELSE 0 END AS share_bytes,
    CASE WHEN has_piece AND chosen_until >= piece_start AND chosen_until < end_offset
      THEN {_SHARE.format(start="piece_start", end="chosen_until")} ELSE 0 END AS freed_before_bytes
  FROM pieces),
freeing AS (
  SELECT *, CASE WHEN end_offset > chosen_until THEN share_bytes - freed_before_bytes ELSE 0 END AS freed_bytes,
    CASE WHEN %(retention_bytes)s >= 0
      THEN %(local_only_bytes)s + coalesce(%(total_bytes)s::numeric, sum(share_bytes) OVER ()) - %(retention_bytes)s
      ELSE 0 END AS all_excess_bytes
  FROM weighed),
exceeding AS (
  SELECT *, all_excess_bytes - %(freed_bytes)s::numeric - coalesce(sum(freed_bytes) FILTER (WHERE walked AND valid) OVER (
    ORDER BY number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS excess_bytes
  FROM freeing),
reasoned AS (
  SELECT w.*, CASE
    WHEN NOT walked THEN NULL
    WHEN below_log_start THEN '{RetentionReason.LOG_START_OFFSET_BREACH.name}'
    WHEN NOT valid THEN NULL
    WHEN age_mark_ms <= q.cut_off_ms THEN '{RetentionReason.RETENTION_TIME.name}'
    WHEN excess_bytes > 0 AND excess_bytes >= freed_bytes THEN '{RetentionReason.RETENTION_SIZE.name}' END AS reason
  FROM exceeding w, q),
decided AS (
  SELECT *, reason IS NOT NULL AND NOT %(stopped)s AND number < coalesce(
    min(number) FILTER (WHERE walked AND valid AND reason IS NULL) OVER (), number + 1) AS expired
  FROM reasoned),
classed AS (
  SELECT d.*, CASE
    WHEN NOT touchable THEN NULL
    WHEN state = {_DELETING} THEN 1
    WHEN expired THEN 2
    WHEN state = {_FINISHED} AND last_epoch < q.earliest_epoch AND end_offset < q.log_end_offset THEN 3
    WHEN state = {_STARTED} AND %(now_ms)s - event_timestamp_ms > %(copy_abandoned_after_ms)s THEN 4 END AS class
  FROM decided d, q),
summed AS (
  SELECT coalesce(sum(share_bytes), 0)::bigint AS remote_bytes, max(end_offset) FILTER (
    WHERE expired AND reason <> '{RetentionReason.LOG_START_OFFSET_BREACH.name}') + 1 AS moved_to,
    count(*) AS segments, max(start_offset) AS last_start, max(end_offset) FILTER (WHERE valid) AS covered_until,
    max(end_offset) FILTER (WHERE walked AND (valid OR below_log_start)) AS chosen_until,
    coalesce(sum(freed_bytes) FILTER (WHERE walked AND valid), 0)::bigint AS freed_bytes,
    coalesce(bool_or(walked AND valid AND reason IS NULL), false) AS stopped
  FROM classed),
chosen AS (
  SELECT segment_id, number, class, CASE class
    WHEN 1 THEN '{RetentionReason.DELETE_UNFINISHED.name}'
    WHEN 2 THEN reason
    WHEN 3 THEN '{RetentionReason.NOT_IN_LINEAGE.name}'
    WHEN 4 THEN '{RetentionReason.COPY_ABANDONED.name}' END AS reason
  FROM classed WHERE class <= %(last_class)s ORDER BY class, number LIMIT {_MAX_CANDIDATES})
SELECT t.remote_bytes, t.moved_to, t.segments, t.last_start, t.covered_until, t.chosen_until, t.freed_bytes, t.stopped,
  c.class, c.reason, {FACT_COLUMNS}
FROM summed t LEFT JOIN chosen c ON true LEFT JOIN remote_log_segment s ON s.segment_id = c.segment_id
ORDER BY c.class, c.number
""")


_CARRIED: Final = (
    "after",
    "covered_until",
    "chosen_until",
    "freed_bytes",
    "stopped",
    "total_bytes",
    "last_class",
)


@dataclass(slots=True, kw_only=True)
class _Walk:
    """What the pages before the next one come to; its fields that the statement takes have the names of parameters."""

    after: int = _NO_OFFSET
    covered_until: int = _NO_OFFSET
    chosen_until: int = _NO_OFFSET
    freed_bytes: int = 0
    stopped: bool = False
    total_bytes: int | None = None
    last_class: int = _LAST_CLASS
    remote_bytes: int = 0
    moved_to: int = _NO_OFFSET
    chosen: list[tuple[int, RetentionCandidate]] = field(default_factory=list)

    def parameters(self) -> dict[str, Any]:
        """Of the statement."""
        return {name: getattr(self, name) for name in _CARRIED}

    def go_on(self, tip: TopicIdPartition, rows: Sequence[Sequence[Any]]) -> int:
        """Takes a page in, and returns how many segments it had."""
        share, moved_to, segments, last_start, covered, chosen, freed, stopped = rows[0][:8]
        self.remote_bytes += share
        self.moved_to = max(self.moved_to, moved_to or _NO_OFFSET)
        self.after = self.after if last_start is None else last_start
        self.covered_until = max(self.covered_until, _NO_OFFSET if covered is None else covered)
        self.chosen_until = max(self.chosen_until, _NO_OFFSET if chosen is None else chosen)
        self.freed_bytes += freed
        self.stopped = self.stopped or stopped
        self.chosen += [(row[8], _candidate(tip, row)) for row in rows if row[8] is not None]
        # Pages follow one another, so those of a class stay in their order.
        self.chosen.sort(key=itemgetter(0))
        del self.chosen[_MAX_CANDIDATES:]
        if len(self.chosen) == _MAX_CANDIDATES:
            # Of later pages only what comes before the last one is wanted.
            self.last_class = self.chosen[-1][0] - 1
        return int(segments)


class RemoteLogRetention:
    """Decides, and changes nothing. No statement looks at more than a page, whatever the number of segments."""

    def __init__(self, database: Database, *, page_size: int = _PAGE_SIZE) -> None:
        self._database = database
        self._page_size = page_size

    async def plan(
        self,
        tip: TopicIdPartition,
        lineage: Mapping[int, int],
        policy: RetentionPolicy,
        now_ms: int,
    ) -> RetentionPlan:
        """See `RemoteLogMetadataManager.list_retention_candidates`; the first candidates of a large backlog."""
        values = {**plan_values(tip, lineage, policy, now_ms), "page_size": self._page_size}
        walk = _Walk()
        if await self._database.read(lambda connection: self._page(connection, tip, values, walk)):
            walk = await self._database.snapshot(
                lambda connection: self._all_pages(connection, tip, values)
            )
        moves = walk.moved_to > policy.log_start_offset
        return RetentionPlan(
            candidates=tuple(candidate for _, candidate in walk.chosen),
            new_log_start_offset=walk.moved_to if moves else None,
            remote_bytes=walk.remote_bytes,
        )

    async def _all_pages(
        self, connection: AsyncConnection, tip: TopicIdPartition, values: Mapping[str, Any]
    ) -> _Walk:
        """Every page, as of one moment: sizes that belong together must not be of different ones."""
        await connection.begin()
        sized = values["retention_bytes"] >= 0
        walk = _Walk(last_class=0 if sized else _LAST_CLASS)
        while await self._page(connection, tip, values, walk):
            continue
        if sized:
            # By now the size of all of it is known, which the first pages could not know.
            walk = _Walk(total_bytes=walk.remote_bytes)
            while await self._page(connection, tip, values, walk):
                continue
        return walk

    async def _page(
        self,
        connection: AsyncConnection,
        tip: TopicIdPartition,
        values: Mapping[str, Any],
        walk: _Walk,
    ) -> bool:
        """One statement; whether there may be more pages."""
        rows = await PLAN.rows(connection, {**values, **walk.parameters()})
        return walk.go_on(tip, rows) >= self._page_size


def _candidate(tip: TopicIdPartition, row: Sequence[Any]) -> RetentionCandidate:
    columns = dict(zip(FACT_COLUMN_NAMES, row[10:], strict=True))
    return RetentionCandidate(
        metadata=segment_from_row(tip, columns), reason=RetentionReason[row[9]]
    )


def plan_values(
    tip: TopicIdPartition, lineage: Mapping[int, int], policy: RetentionPolicy, now_ms: int
) -> Mapping[str, Any]:
    """Parameters of `PLAN`, for the first page."""
    filtered = build_filtered_leader_epoch_map(lineage)
    return partition_key(tip).values | {
        "lineage_epochs": list(filtered),
        "lineage_starts": list(filtered.values()),
        "earliest_epoch": min(lineage, default=None),
        "log_start_offset": policy.log_start_offset,
        "log_end_offset": policy.log_end_offset,
        "cut_off_ms": now_ms - policy.retention_ms if policy.retention_ms >= 0 else -1,
        "retention_bytes": policy.retention_bytes,
        "local_only_bytes": policy.local_only_bytes,
        "in_progress": [uuid.UUID(bytes=each.raw) for each in policy.in_progress],
        "copy_abandoned_after_ms": policy.copy_abandoned_after_ms,
        "now_ms": now_ms,
        "page_size": _PAGE_SIZE,
        **_Walk().parameters(),
    }
