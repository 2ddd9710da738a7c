"""Which finished segments answer look-ups: those that no other finished one of the epoch covers (K-2.2).

Kafka keeps the copy that was finished last unless an older one reaches further, and forgets what it displaced. We keep flags
on everything: a copy covers another when it holds all its offsets and more, or the same and was finished later. When a
covering copy is deleted, what it covered answers again.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres.remote_log_rows import Columns

_RANGES = (
    "unnest(CAST(:epochs AS int[]), CAST(:epoch_starts AS bigint[]), CAST(:epoch_ends AS bigint[]))"
)

RAISE_HIGHEST_AND_DISPLACE = text(f"""
WITH raised AS (
  INSERT INTO remote_log_epoch AS h (topic_id, partition, leader_epoch, highest_offset)
  SELECT :topic_id, :partition, r.leader_epoch, r.end_offset
  FROM {_RANGES} AS r (leader_epoch, start_offset, end_offset)
  ON CONFLICT (topic_id, partition, leader_epoch)
  DO UPDATE SET highest_offset = greatest(h.highest_offset, excluded.highest_offset))
UPDATE remote_log_segment_epoch e SET referenced = false
FROM {_RANGES} AS r (leader_epoch, start_offset, end_offset)
WHERE e.topic_id = :topic_id AND e.partition = :partition AND e.leader_epoch = r.leader_epoch
  AND e.start_offset BETWEEN r.start_offset AND r.end_offset AND e.end_offset <= r.end_offset AND e.referenced
""")

REFERENCE = text(f"""
UPDATE remote_log_segment_epoch e
SET finished_version = :version, referenced = NOT coalesce((
  SELECT o.end_offset >= e.end_offset FROM remote_log_segment_epoch o
  WHERE o.topic_id = e.topic_id AND o.partition = e.partition AND o.leader_epoch = e.leader_epoch
    AND o.start_offset <= e.start_offset AND o.referenced
  ORDER BY o.start_offset DESC LIMIT 1), false)
FROM {_RANGES} AS r (leader_epoch, start_offset, end_offset)
WHERE e.topic_id = :topic_id AND e.partition = :partition AND e.leader_epoch = r.leader_epoch
  AND e.segment_id = :segment_id
""")

_UNREFERENCE = text(f"""
UPDATE remote_log_segment_epoch e SET referenced = false, finished_version = NULL
FROM {_RANGES} AS r (leader_epoch, start_offset, end_offset)
WHERE e.topic_id = :topic_id AND e.partition = :partition AND e.leader_epoch = r.leader_epoch
  AND e.segment_id = :segment_id
""")

_UNCOVERED = text(f"""
SELECT r.leader_epoch AS of_epoch, e.segment_id, e.start_offset, e.end_offset, e.referenced, e.finished_version
FROM {_RANGES} AS r (leader_epoch, start_offset, end_offset)
CROSS JOIN LATERAL (
  SELECT d.* FROM remote_log_segment_epoch d
  WHERE d.topic_id = :topic_id AND d.partition = :partition AND d.leader_epoch = r.leader_epoch
    AND d.start_offset BETWEEN r.start_offset AND r.end_offset AND d.finished_version IS NOT NULL AND NOT d.referenced
  UNION ALL
  SELECT i.* FROM remote_log_segment_epoch i
  WHERE i.topic_id = :topic_id AND i.partition = :partition AND i.leader_epoch = r.leader_epoch
    AND i.start_offset BETWEEN r.start_offset AND r.end_offset AND i.referenced
  UNION ALL
  (SELECT o.* FROM remote_log_segment_epoch o
   WHERE o.topic_id = :topic_id AND o.partition = :partition AND o.leader_epoch = r.leader_epoch
     AND o.start_offset < r.start_offset AND o.referenced
   ORDER BY o.start_offset DESC LIMIT 1)) e
""")

_REFERENCE_AGAIN = text("""
UPDATE remote_log_segment_epoch SET referenced = true
WHERE topic_id = :topic_id AND partition = :partition AND leader_epoch = :leader_epoch
  AND segment_id = :segment_id
""")


async def reference(connection: AsyncConnection, values: Mapping[str, Any]) -> None:
    """Makes a finished segment answer look-ups, and raises the highest offsets of its epochs.

    Args:
        values: of `segment_values`, with `version`, the partition's version of this change.
    """
    await connection.execute(RAISE_HIGHEST_AND_DISPLACE, values)
    await connection.execute(REFERENCE, values)


async def unreference(connection: AsyncConnection, values: Mapping[str, Any]) -> None:
    """Makes a segment answer no more; finished ones that it covered answer again."""
    await connection.execute(_UNREFERENCE, values)
    rows = (await connection.execute(_UNCOVERED, values)).mappings().all()
    again = [
        {
            "topic_id": values["topic_id"],
            "partition": values["partition"],
            "leader_epoch": row["of_epoch"],
            "segment_id": row["segment_id"],
        }
        for row in _newly_uncovered(rows)
    ]
    if again:
        await connection.execute(_REFERENCE_AGAIN, again)


def _newly_uncovered(rows: Iterable[Columns]) -> list[Columns]:
    """Those without a reference that nothing else covers. Ordered so that what covers comes before what is covered."""
    ordered = sorted(
        rows,
        key=lambda row: (
            row["of_epoch"],
            row["start_offset"],
            -row["end_offset"],
            -row["finished_version"],
        ),
    )
    uncovered = []
    epoch, reached = None, -1
    for row in ordered:
        if row["of_epoch"] != epoch:
            epoch, reached = row["of_epoch"], -1
        if row["end_offset"] <= reached:
            continue
        reached = row["end_offset"]
        if not row["referenced"]:
            uncovered.append(row)
    return uncovered
