"""What turning a topic's tiering off and on again means for its remote partitions; in the transaction that changes the setting.

Off: all of them are marked for deletion. On: those whose deletion has finished take segments anew. They keep the time of that
deletion, so that late calls of whoever carried it out are told apart, and answered as before.
"""

import uuid
from typing import Any, Final

from aquifer_core.errors import ErrorReason, PreconditionError
from aquifer_core.segment import RemoteLogSegmentMetadataUpdate
from aquifer_core.state import RemoteLogSegmentState, RemotePartitionDeleteState
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres.remote_log_rows import Columns

_FINISHED: Final = int(RemotePartitionDeleteState.DELETE_PARTITION_FINISHED)
_DELETING: Final = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
_PARTITION_DELETED: Final = "PARTITION_DELETED"
"""Reason that the deletion of a partition gives when it deletes a segment."""

# In the order in which deletions and leaders take these rows.
_DELETIONS: Final = text("""
SELECT p.partition, p.topic, p.delete_state, EXISTS (
  SELECT FROM remote_log_segment s WHERE s.topic_id = p.topic_id AND s.partition = p.partition) AS remembered
FROM remote_log_partition p WHERE p.topic_id = :topic_id AND p.delete_state IS NOT NULL
ORDER BY p.partition FOR UPDATE OF p
""")

_REOPEN: Final = text(f"""
WITH opened AS (
  UPDATE remote_log_partition SET delete_state = NULL, earliest_log_offset = NULL, version = version + 1,
    delete_event_timestamp_ms = coalesce(delete_event_timestamp_ms, 0)
  WHERE topic_id = :topic_id AND delete_state = {_FINISHED}
  RETURNING topic_id, partition, version),
offsets AS (
  DELETE FROM remote_log_epoch h USING opened o WHERE h.topic_id = o.topic_id AND h.partition = o.partition)
INSERT INTO remote_log_segment_event (topic_id, partition, version, timestamp_ms, event_timestamp_ms, reason, trace_id)
SELECT topic_id, partition, version, :now_ms, :now_ms, 'tiering enabled again', :trace_id FROM opened
""")


async def check_deletions_finished(connection: AsyncConnection, topic_id: uuid.UUID) -> bool:
    """Whether partitions of a topic are to be reopened; takes their rows until the end of the transaction.

    Raises:
        PreconditionError: remote data is still being deleted (INVALID_PARTITION_TRANSITION); metadata keys `from`, `partition`.
    """
    rows = (await connection.execute(_DELETIONS, {"topic_id": topic_id})).mappings().all()
    for row in rows:
        if row["delete_state"] != _FINISHED or row["remembered"]:
            raise _not_yet(row)
    return bool(rows)


async def reopen(
    connection: AsyncConnection, topic_id: uuid.UUID, *, now_ms: int, trace_id: str
) -> None:
    """Lets the partitions whose deletion has finished take segments again, as if they had never had any."""
    values: dict[str, Any] = {"topic_id": topic_id, "now_ms": now_ms, "trace_id": trace_id}
    await connection.execute(_REOPEN, values)


def refuse_late_deletion(
    update: RemoteLogSegmentMetadataUpdate, before: RemoteLogSegmentState
) -> None:
    """Keeps the deletion of a partition, which another has finished long ago, from what was copied since.

    Args:
        update: of a segment of a partition that is not being deleted.
        before: the segment's state.

    Raises:
        PreconditionError: it deletes the segment because the partition is deleted (INVALID_PARTITION_TRANSITION).
    """
    if (update.reason, update.state) == (_PARTITION_DELETED, _DELETING) and before is not _DELETING:
        raise PreconditionError(
            f"{update.segment_id.topic_id_partition} is not being deleted any more; its segments stay",
            reason=ErrorReason.INVALID_PARTITION_TRANSITION,
            metadata={"from": RemotePartitionDeleteState(_FINISHED).name, "to": ""},
        )


def _not_yet(row: Columns) -> PreconditionError:
    state = RemotePartitionDeleteState(row["delete_state"]).name
    return PreconditionError(
        f"remote data of {row['topic']}-{row['partition']} is still being deleted ({state}); tiering can be enabled again"
        " when that has finished, which managers bring about: wait, and repeat",
        reason=ErrorReason.INVALID_PARTITION_TRANSITION,
        metadata={"from": state, "to": "", "partition": str(row["partition"])},
    )
