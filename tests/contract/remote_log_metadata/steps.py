"""Steps and questions that the contract of the RemoteLogMetadataManager is made of."""

import asyncio
from contextlib import aclosing
from typing import Any

import builders
from aquifer_core.ids import RemoteLogSegmentId, TopicIdPartition
from aquifer_core.ports import (
    PartitionChange,
    RemoteLogMetadataManager,
)
from aquifer_core.segment import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)
from aquifer_core.state import RemoteLogSegmentState, RemotePartitionDeleteState

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
MARKED, DELETION_STARTED, FORGOTTEN = RemotePartitionDeleteState

Manager = RemoteLogMetadataManager
WAIT_S = 60


def tip() -> TopicIdPartition:
    return builders.topic_id_partition()


def update(
    metadata: RemoteLogSegmentMetadata, state: RemoteLogSegmentState, **fields: Any
) -> RemoteLogSegmentMetadataUpdate:
    defaults: dict[str, Any] = {
        "segment_id": metadata.segment_id,
        "event_timestamp_ms": metadata.event_timestamp_ms + int(state),
        "state": state,
        "broker_id": metadata.broker_id,
        "custom_metadata": metadata.custom_metadata,
        "reason": state.name.lower(),
    }
    return RemoteLogSegmentMetadataUpdate(**(defaults | fields))


PATHS = {
    STARTED: (),
    FINISHED: (FINISHED,),
    DELETING: (FINISHED, DELETING),
    DELETED: (FINISHED, DELETING, DELETED),
}
"""How a segment gets into a state."""


async def brought_to(
    rlmm: Manager, metadata: RemoteLogSegmentMetadata, state: RemoteLogSegmentState = FINISHED
) -> RemoteLogSegmentMetadata:
    """Adds a segment and moves it to a state."""
    await rlmm.add_remote_log_segment_metadata(metadata)
    for step in PATHS[state]:
        change = update(metadata, step)
        await rlmm.update_remote_log_segment_metadata(change)
        metadata = metadata.with_update(change)
    return metadata


async def move(
    rlmm: Manager, metadata: RemoteLogSegmentMetadata, *states: RemoteLogSegmentState
) -> None:
    for state in states:
        await rlmm.update_remote_log_segment_metadata(update(metadata, state))


async def listed(
    rlmm: Manager, partition: TopicIdPartition, leader_epoch: int | None = None
) -> list[RemoteLogSegmentMetadata]:
    segments = rlmm.list_remote_log_segments(partition, leader_epoch)
    return [metadata async for metadata in segments]


async def found(
    rlmm: Manager, partition: TopicIdPartition, leader_epoch: int, offset: int
) -> RemoteLogSegmentId | None:
    metadata = await rlmm.remote_log_segment_metadata(partition, leader_epoch, offset)
    return None if metadata is None else metadata.segment_id


async def move_deletion(
    rlmm: Manager, partition: TopicIdPartition, *states: RemotePartitionDeleteState
) -> None:
    for state in states:
        await rlmm.put_remote_partition_delete_metadata(
            RemotePartitionDeleteMetadata(
                topic_id_partition=partition, state=state, event_timestamp_ms=1, broker_id=1
            )
        )


async def deletions(rlmm: Manager) -> list[RemotePartitionDeleteMetadata]:
    return [deletion async for deletion in rlmm.list_partition_deletions()]


async def changes(
    rlmm: Manager, partition: TopicIdPartition, from_version: int, count: int
) -> list[PartitionChange]:
    """The next changes of a partition."""
    received = []
    async with (
        asyncio.timeout(WAIT_S),
        aclosing(rlmm.watch_partition(partition, from_version)) as watch,  # type: ignore[type-var]
    ):
        async for change in watch:
            received.append(change)
            if len(received) == count:
                break
    return received
