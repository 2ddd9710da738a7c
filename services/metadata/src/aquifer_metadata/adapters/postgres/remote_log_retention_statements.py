"""The statements that decide what retention deletes; they say what `aquifer_core.retention.plan_retention` says.

Segments are judged one by one as an index gives them, in the order of their start offsets, and what a segment needs to know of those
before it is a running maximum or sum: nothing is sorted but segments that begin at the same offset, and nothing is kept that grows with
the partition. Every step names that order again: it costs nothing where it is kept, the planner would lose it without, and it keeps PostgreSQL from
copying an expression to every place where its result is used.
"""

from typing import Final

from aquifer_core.ports import RetentionReason
from aquifer_core.state import RemoteLogSegmentState, RemotePartitionDeleteState

from aquifer_metadata.adapters.postgres.driver_statement import DriverStatement
from aquifer_metadata.adapters.postgres.remote_log_rows import FACT_COLUMNS

__all__ = ["EXPIRY", "PLAN", "SURVEY", "UNFINISHED"]

_STARTED = int(RemoteLogSegmentState.COPY_SEGMENT_STARTED)
_FINISHED = int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
_DELETING = int(RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
_FORGOTTEN = int(RemotePartitionDeleteState.DELETE_PARTITION_FINISHED)

_EXPIRED_CLASS, _LEFT_LINEAGE, _ABANDONED = 1, 2, 3
UNFINISHED: Final = 4
"""Classes of candidates, in the order in which they are chosen: those whose deletion may fail for ever stand in nobody's way."""


def _asked(name: str) -> str:
    """A value of the question, read once; joining the question to segments would hide their order from the planner."""
    return f"(SELECT {name} FROM q)"


_EPOCHS = _asked("lineage_epochs")
_STARTS = _asked("lineage_starts")

_QUESTION = """q AS MATERIALIZED (
  SELECT %(lineage_epochs)s::int[] AS lineage_epochs, (%(lineage_epochs)s::int[])[1] AS first_epoch,
    %(lineage_starts)s::bigint[] AS lineage_starts, %(log_start_offset)s::bigint AS log_start_offset,
    %(log_end_offset)s::bigint AS log_end_offset, %(cut_off_ms)s::bigint AS cut_off_ms,
    %(earliest_epoch)s::int AS earliest_epoch, %(now_ms)s::bigint - %(copy_abandoned_after_ms)s::bigint AS abandoned_before_ms,
    %(retention_bytes)s::bigint AS retention_bytes, %(local_only_bytes)s::numeric AS local_only_bytes, (
      SELECT min(s.start_offset) FROM remote_log_segment s
      WHERE s.segment_id = ANY(%(in_progress)s::uuid[])
        AND s.topic_id = %(topic_id)s AND s.partition = %(partition)s) AS untouchable_from)"""

# A segment of one epoch, which is nearly every one, needs no subquery.
_INSIDE = f"""CASE WHEN cardinality(s.leader_epochs) = 1
    THEN CASE WHEN s.leader_epochs[1] >= {_asked("first_epoch")} THEN s.{{column}} END
    ELSE (
      SELECT array_agg(r.{{value}} ORDER BY r.epoch)
      FROM unnest(s.leader_epochs, s.leader_epoch_offsets) AS r (epoch, start)
      WHERE r.epoch >= {_asked("first_epoch")}) END"""

_JUDGED = f"""listed AS NOT MATERIALIZED (
  SELECT s.segment_id, s.start_offset, s.end_offset, s.segment_size_bytes, s.state, s.event_timestamp_ms,
    CASE WHEN s.max_timestamp_ms >= 0 THEN s.max_timestamp_ms ELSE s.event_timestamp_ms END AS age_mark_ms,
    s.leader_epochs[cardinality(s.leader_epochs)] AS last_epoch,
    s.leader_epochs && {_EPOCHS} AS touches_lineage,
    {_asked("untouchable_from")} IS NULL OR s.start_offset < {_asked("untouchable_from")} AS touchable,
    {_INSIDE.format(column="leader_epochs", value="epoch")} AS inside_epochs,
    {_INSIDE.format(column="leader_epoch_offsets", value="start")} AS inside_starts
  FROM (
    SELECT s.* FROM remote_log_segment s
    WHERE s.topic_id = %(topic_id)s AND s.partition = %(partition)s AND s.start_offset > %(after)s AND NOT EXISTS (
      SELECT FROM remote_log_partition p
      WHERE p.topic_id = %(topic_id)s AND p.partition = %(partition)s AND p.delete_state = {_FORGOTTEN})
    ORDER BY s.start_offset FETCH FIRST (%(page_size)s) ROWS WITH TIES) s
  ORDER BY s.start_offset),
placed AS NOT MATERIALIZED (
  SELECT l.*, array_position({_EPOCHS}, l.inside_epochs[1]) AS place, cardinality(l.inside_epochs) AS epochs
  FROM listed l ORDER BY l.start_offset),
judged AS {{how}} (
  SELECT l.segment_id, l.start_offset, l.end_offset, l.segment_size_bytes, l.state, l.event_timestamp_ms, l.age_mark_ms,
    l.last_epoch, l.touchable, l.touchable AND l.touches_lineage AND l.state = {_FINISHED} AS walked,
    l.end_offset < {_asked("log_start_offset")} AND l.last_epoch <= {_asked("first_epoch")} AS below_log_start,
    coalesce(l.state = {_FINISHED} AND l.end_offset < {_asked("log_end_offset")}
      AND (l.place = 1 OR l.inside_starts[1] >= {_STARTS}[l.place])
      AND (l.epochs = 1
        OR l.inside_epochs[2:] = {_EPOCHS}[l.place + 1:l.place + l.epochs - 1]
        AND l.inside_starts[2:] = {_STARTS}[l.place + 1:l.place + l.epochs - 1])
      AND (l.place + l.epochs > cardinality({_EPOCHS}) OR l.end_offset < {_STARTS}[l.place + l.epochs]),
      false) AS valid
  FROM placed l ORDER BY l.start_offset)"""

_ORDER = "ORDER BY start_offset, end_offset, segment_id"
_WINDOWS = f"WINDOW earlier AS ({_ORDER} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"

_SHARE = """CASE WHEN {start} <= start_offset AND {end} >= end_offset THEN segment_size_bytes
      ELSE div(segment_size_bytes::numeric * ({end} - {start} + 1), end_offset - start_offset + 1)::bigint END"""
"""Bytes of a part of a segment, as if its offsets were equally large; exact for the whole."""

_COVERED = "greatest(max(end_offset) FILTER (WHERE valid) OVER earlier, %(covered_until)s) AS covered_until"

_PIECES = """SELECT *, greatest(start_offset, covered_until + 1) AS piece_start,
    valid AND end_offset > covered_until AS has_piece"""
_PIECE_BYTES = (
    f"CASE WHEN has_piece THEN {_SHARE.format(start='piece_start', end='end_offset')} ELSE 0 END"
)

_SURVEY = f"""survey_pieces AS NOT MATERIALIZED (
  {_PIECES}
  FROM (SELECT *, {_COVERED} FROM judged {_WINDOWS}) j {_ORDER}),
survey_classed AS NOT MATERIALIZED (
  SELECT *, {_PIECE_BYTES} AS share_bytes, CASE
    WHEN NOT touchable THEN NULL
    WHEN state = {_FINISHED} AND last_epoch < {_asked("earliest_epoch")} AND end_offset < {_asked("log_end_offset")} THEN {_LEFT_LINEAGE}
    WHEN state = {_STARTED} AND event_timestamp_ms < {_asked("abandoned_before_ms")} THEN {_ABANDONED}
    WHEN state = {_DELETING} THEN {UNFINISHED} END AS class
  FROM survey_pieces {_ORDER}),
survey AS MATERIALIZED (
  SELECT coalesce(sum(share_bytes), 0)::bigint AS remote_bytes, count(*) AS segments, max(start_offset) AS last_start,
    max(end_offset) FILTER (WHERE valid) AS covered_until,
    array_agg(segment_id) FILTER (WHERE class <= %(last_class)s) AS ids,
    array_agg(class) FILTER (WHERE class <= %(last_class)s) AS classes,
    array_agg(CASE class WHEN {UNFINISHED} THEN event_timestamp_ms ELSE 0 END) FILTER (WHERE class <= %(last_class)s) AS tried
  FROM survey_classed)"""
"""Sizes, and what goes whatever the size. A segment from before the lineage is in no epoch of it, so that it does not expire as well."""

_EXPIRY = f"""expiry_pieces AS NOT MATERIALIZED (
  {_PIECES}
  FROM (
    SELECT *, {_COVERED},
      greatest(max(end_offset) FILTER (WHERE walked AND (valid OR below_log_start)) OVER earlier, %(chosen_until)s)
        AS chosen_until
    FROM judged {_WINDOWS}) j {_ORDER}),
freeing AS NOT MATERIALIZED (
  SELECT *, CASE WHEN end_offset > chosen_until
    THEN {_PIECE_BYTES} - CASE WHEN has_piece AND chosen_until >= piece_start
      THEN {_SHARE.format(start="piece_start", end="chosen_until")} ELSE 0 END
    ELSE 0 END AS freed_bytes
  FROM expiry_pieces {_ORDER}),
reasoned AS NOT MATERIALIZED (
  SELECT *, CASE
    WHEN NOT walked THEN NULL
    WHEN below_log_start THEN '{RetentionReason.LOG_START_OFFSET_BREACH.name}'
    WHEN NOT valid THEN NULL
    WHEN age_mark_ms <= {_asked("cut_off_ms")} THEN '{RetentionReason.RETENTION_TIME.name}'
    WHEN excess_bytes > 0 AND excess_bytes >= freed_bytes THEN '{RetentionReason.RETENTION_SIZE.name}' END AS reason
  FROM (
    SELECT *, (SELECT bytes FROM excess)
      - coalesce(sum(freed_bytes) FILTER (WHERE walked AND valid) OVER earlier, 0) AS excess_bytes
    FROM freeing {_WINDOWS}) f {_ORDER}),
decided AS NOT MATERIALIZED (
  SELECT *, reason IS NOT NULL AND NOT coalesce(
    bool_or(walked AND valid AND reason IS NULL) OVER earlier, false) AS expired
  FROM reasoned {_WINDOWS} {_ORDER}),
expiry AS MATERIALIZED (
  SELECT max(end_offset) FILTER (WHERE expired AND reason <> '{RetentionReason.LOG_START_OFFSET_BREACH.name}') + 1 AS moved_to,
    count(*) AS segments, max(start_offset) AS last_start, max(end_offset) FILTER (WHERE valid) AS covered_until,
    max(end_offset) FILTER (WHERE walked AND (valid OR below_log_start)) AS chosen_until,
    coalesce(sum(freed_bytes) FILTER (WHERE walked AND valid), 0)::bigint AS freed_bytes,
    coalesce(bool_or(walked AND valid AND reason IS NULL OR NOT touchable), false) AS stopped,
    array_agg(segment_id) FILTER (WHERE expired AND %(last_class)s >= {_EXPIRED_CLASS}) AS ids,
    array_agg(reason) FILTER (WHERE expired AND %(last_class)s >= {_EXPIRED_CLASS}) AS reasons
  FROM decided)"""

_EXCESS = f"""excess AS MATERIALIZED (
  SELECT CASE WHEN {_asked("retention_bytes")} >= 0
    THEN {_asked("local_only_bytes")} + {{total}} - {_asked("retention_bytes")} - %(freed_bytes)s::numeric
    ELSE 0 END AS bytes)"""

_OTHERS = f"""SELECT segment_id, class, tried_ms, number, CASE class
    WHEN {_LEFT_LINEAGE} THEN '{RetentionReason.NOT_IN_LINEAGE.name}'
    WHEN {_ABANDONED} THEN '{RetentionReason.COPY_ABANDONED.name}'
    WHEN {UNFINISHED} THEN '{RetentionReason.DELETE_UNFINISHED.name}' END AS reason
  FROM survey, unnest(ids, classes, tried) WITH ORDINALITY AS c (segment_id, class, tried_ms, number)"""
_EXPIRED = f"""SELECT segment_id, {_EXPIRED_CLASS} AS class, 0::bigint AS tried_ms, number, reason
  FROM expiry, unnest(ids, reasons) WITH ORDINALITY AS c (segment_id, reason, number)"""


def _statement(parts: tuple[str, ...], results: str, source: str, chosen: str) -> DriverStatement:
    """`results` of the one row of `source`, beside each chosen segment in the order of classes, and of offsets or last attempts."""
    return DriverStatement(f"""
WITH {", ".join((_QUESTION, *parts))},
chosen AS MATERIALIZED ({chosen} ORDER BY class, tried_ms, number LIMIT %(max_candidates)s)
SELECT {results}, c.class, c.reason, {FACT_COLUMNS}
FROM {source} LEFT JOIN chosen c ON true LEFT JOIN remote_log_segment s ON s.segment_id = c.segment_id
ORDER BY c.class, c.tried_ms, c.number
""")


SURVEY: Final = _statement(
    (_JUDGED.format(how="NOT MATERIALIZED"), _SURVEY),
    "t.remote_bytes, t.segments, t.last_start, t.covered_until",
    "survey t",
    _OTHERS,
)
"""A page of segments: what they weigh, and which go whatever the size of the log."""

EXPIRY: Final = _statement(
    (
        _JUDGED.format(how="NOT MATERIALIZED"),
        _EXCESS.format(total="coalesce(%(total_bytes)s::numeric, 0)"),
        _EXPIRY,
    ),
    "t.moved_to, t.segments, t.last_start, t.covered_until, t.chosen_until, t.freed_bytes, t.stopped",
    "expiry t",
    _EXPIRED,
)
"""A page of segments: which of them are too old, too much or below the log start, when all of the log weighs `total_bytes`."""

PLAN: Final = _statement(
    (
        _JUDGED.format(how="MATERIALIZED"),
        _SURVEY,
        _EXCESS.format(total="(SELECT remote_bytes FROM survey)"),
        _EXPIRY,
    ),
    "t.remote_bytes, t.segments, x.moved_to",
    "survey t, expiry x",
    f"{_OTHERS} UNION ALL {_EXPIRED}",
)
"""Both at once, of a partition whose segments fit into one page."""
