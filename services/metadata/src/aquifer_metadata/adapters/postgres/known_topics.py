"""Topics that are created under an id whose remote segments are known already: after a rebuild, or a deletion that is taken back."""

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from aquifer_core.errors import (
    AlreadyExistsError,
    ErrorReason,
    InvalidRequestError,
    PreconditionError,
)
from aquifer_core.ids import KafkaUuid
from aquifer_core.state import RemotePartitionDeleteState
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres.cluster_rows import to_uuid
from aquifer_metadata.adapters.postgres.remote_log_rows import Columns
from aquifer_metadata.adapters.postgres.tables import topic
from aquifer_metadata.domain.cluster import NewTopic, Partition

_MARKED: Final = RemotePartitionDeleteState.DELETE_PARTITION_MARKED
_RESERVED: Final = 100
"""Kafka keeps the first ids for itself: one whose upper half is 0 and whose lower half is below this."""

# In the order in which deletions and leaders take these rows.
_KNOWN = text("""
SELECT p.partition, p.topic, p.delete_state, greatest(p.highest_leader_epoch, (
  SELECT max(h.leader_epoch) FROM remote_log_epoch h
  WHERE h.topic_id = p.topic_id AND h.partition = p.partition)) AS leader_epoch
FROM remote_log_partition p WHERE p.topic_id = :topic_id ORDER BY p.partition FOR UPDATE OF p
""")

_TAKE_BACK = text(f"""
WITH back AS (
  UPDATE remote_log_partition SET delete_state = NULL, delete_event_timestamp_ms = NULL, delete_broker_id = NULL,
    version = version + 1
  WHERE topic_id = :topic_id AND delete_state = {int(_MARKED)}
  RETURNING topic_id, partition, version)
INSERT INTO remote_log_segment_event (topic_id, partition, version, timestamp_ms, event_timestamp_ms, reason, trace_id)
SELECT topic_id, partition, version, :now_ms, :now_ms, 'topic created again', :trace_id FROM back
""")


async def attached(
    connection: AsyncConnection, new: NewTopic, partitions: Sequence[Partition]
) -> tuple[Partition, ...]:
    """The partitions of a new topic with leader epochs above all that their remote segments were written in.

    Takes the rows of the remote partitions until the end of the transaction.

    Raises:
        AlreadyExistsError: another topic has the id.
        InvalidRequestError: the id cannot be given, or the remote segments are of another name or of more partitions.
        PreconditionError: remote data of the topic is being or was deleted.
    """
    assert new.topic_id is not None
    topic_id = to_uuid(new.topic_id)
    await _check_free(connection, new, topic_id)
    rows = (await connection.execute(_KNOWN, {"topic_id": topic_id})).mappings().all()
    for row in rows:
        _check_fits(new, row, len(partitions))
    epochs = {row["partition"]: row["leader_epoch"] for row in rows}
    return tuple(
        replace(each, leader_epoch=max(each.leader_epoch, epochs.get(each.partition, -1) + 1))
        for each in partitions
    )


async def take_deletion_back(
    connection: AsyncConnection, topic_id: KafkaUuid, *, now_ms: int, trace_id: str
) -> None:
    """Unmarks the partitions of a topic whose deletion nobody has begun to carry out."""
    values: dict[str, Any] = {
        "topic_id": to_uuid(topic_id),
        "now_ms": now_ms,
        "trace_id": trace_id,
    }
    await connection.execute(_TAKE_BACK, values)


async def _check_free(connection: AsyncConnection, new: NewTopic, topic_id: uuid.UUID) -> None:
    if topic_id.int < _RESERVED:
        raise _invalid(new, f"topic id {new.topic_id} is reserved")
    found = await connection.scalar(select(topic.c.name).where(topic.c.topic_id == topic_id))
    if found is not None:
        raise AlreadyExistsError(
            f"topic {found!r} has the id {new.topic_id}",
            metadata={"topic": found, "topicId": str(new.topic_id)},
        )


def _check_fits(new: NewTopic, row: Columns, partitions: int) -> None:
    if row["topic"] != new.name:
        raise _invalid(
            new, f"remote segments of topic id {new.topic_id} were written as {row['topic']!r}"
        )
    if row["partition"] >= partitions:
        raise InvalidRequestError(
            f"topic id {new.topic_id} has a remote partition {row['partition']}; create at least so many partitions",
            reason=ErrorReason.INVALID_PARTITIONS,
            metadata={"topic": new.name},
        )
    state = row["delete_state"]
    if state is not None and state != int(_MARKED):
        name = RemotePartitionDeleteState(state).name
        raise PreconditionError(
            f"remote data of {new.name!r} under this id is being or was deleted ({name}); create it under a new id",
            reason=ErrorReason.INVALID_PARTITION_TRANSITION,
            metadata={"from": name, "to": ""},
        )


def _invalid(new: NewTopic, message: str) -> InvalidRequestError:
    return InvalidRequestError(
        message, reason=ErrorReason.INVALID_TOPIC, metadata={"topic": new.name}
    )
