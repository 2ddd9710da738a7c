"""Names of topics and partitions, looked up in the cluster metadata."""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from aquifer.common.v1 import partition_pb2, segment_pb2
from aquifer.metadata.v1 import cluster_metadata_service_pb2 as cluster_pb2
from aquifer.metadata.v1 import remote_log_metadata_service_pb2 as facts_pb2
from aquifer.metadata.v1.cluster_metadata_service_pb2_grpc import ClusterMetadataServiceStub
from aquifer.metadata.v1.remote_log_metadata_service_pb2_grpc import RemoteLogMetadataServiceStub
from aquifer_core.errors import ErrorReason, RemoteResourceNotFoundError, UnavailableError
from aquifer_rpc.cluster_parts import whole_changes

from aquifer_admin.connection import Peer, Role, Session

T = TypeVar("T")

_MAX_CONCURRENT_CALLS = 16


async def read_snapshot(peer: Peer) -> cluster_pb2.ClusterSnapshot:
    """The state of the cluster now."""
    stub = ClusterMetadataServiceStub(peer.channel)
    request = cluster_pb2.WatchClusterMetadataRequest(from_version=0, accepts_parts=True)
    parts = peer.read(stub.WatchClusterMetadata, request)
    async with aclosing(whole_changes(parts)) as changes:
        async for change in changes:
            if change.HasField("snapshot"):
                return change.snapshot
    raise peer.located(UnavailableError("the watch ended before the snapshot"))


async def find_topic(peer: Peer, name: str) -> cluster_pb2.Topic:
    """A topic by name.

    Raises:
        RemoteResourceNotFoundError: there is no such topic.
    """
    return topic_in(await read_snapshot(peer), name)


def topic_in(snapshot: cluster_pb2.ClusterSnapshot, name: str) -> cluster_pb2.Topic:
    """A topic of a snapshot.

    Raises:
        RemoteResourceNotFoundError: there is no such topic.
    """
    for topic in snapshot.topics:
        if topic.name == name:
            return topic
    raise RemoteResourceNotFoundError(
        f"there is no topic {name!r}; `aquifer topics list` shows those that exist",
        reason=ErrorReason.TOPIC_NOT_FOUND,
        metadata={"topic": name},
    )


def partitions_of(
    topic: cluster_pb2.Topic, partition: int | None = None
) -> list[partition_pb2.TopicIdPartition]:
    """All partitions of a topic, or the one asked for.

    Raises:
        RemoteResourceNotFoundError: the topic has no such partition.
    """
    numbers = sorted(each.partition for each in topic.partitions)
    if partition is not None and partition not in numbers:
        raise RemoteResourceNotFoundError(
            f"topic {topic.name!r} has no partition {partition}; it has {len(numbers)}, from 0",
            reason=ErrorReason.PARTITION_NOT_FOUND,
            metadata={"topic": topic.name},
        )
    return [
        partition_pb2.TopicIdPartition(topic_id=topic.topic_id, topic=topic.name, partition=number)
        for number in numbers
        if partition in (None, number)
    ]


async def find_partition(
    session: Session, topic: str, partition: int
) -> partition_pb2.TopicIdPartition:
    """A partition by the name of its topic.

    Raises:
        RemoteResourceNotFoundError: there is no such topic or partition.
    """
    found = await find_topic(session.peer(Role.METADATA), topic)
    return partitions_of(found, partition)[0]


async def read_segments(
    peer: Peer, partition: partition_pb2.TopicIdPartition
) -> list[segment_pb2.RemoteLogSegmentMetadata]:
    """Every segment of a partition that metadata knows, by start offset."""
    stub = RemoteLogMetadataServiceStub(peer.channel)
    request = facts_pb2.ListRemoteLogSegmentsRequest(topic_id_partition=partition)
    async with aclosing(peer.read(stub.ListRemoteLogSegments, request)) as pages:
        return [segment async for page in pages for segment in page.segments]


async def read_segments_at(
    peer: Peer, partition: partition_pb2.TopicIdPartition, at_ms: int
) -> list[segment_pb2.RemoteLogSegmentMetadata]:
    """Every segment of a partition that was not gone at a past time, as it was then.

    Raises:
        OffsetOutOfRangeError: the history does not reach back that far.
    """
    stub = RemoteLogMetadataServiceStub(peer.channel)
    request = facts_pb2.ListRemoteLogSegmentsAtRequest(
        topic_id_partition=partition, timestamp_ms=at_ms
    )
    async with aclosing(peer.read(stub.ListRemoteLogSegmentsAt, request)) as pages:
        return [segment async for page in pages for segment in page.segments]


async def read_segments_of_all(
    peer: Peer,
    partitions: Sequence[partition_pb2.TopicIdPartition],
    at_ms: int | None = None,
) -> list[list[segment_pb2.RemoteLogSegmentMetadata]]:
    """Segments of many partitions, in their order, a few partitions at a time; now, or at a past time."""
    return await in_parallel(
        read_segments(peer, partition)
        if at_ms is None
        else read_segments_at(peer, partition, at_ms)
        for partition in partitions
    )


async def in_parallel(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Results in the order of the calls; the first failure ends the others and is raised as it is."""
    slots = asyncio.Semaphore(_MAX_CONCURRENT_CALLS)
    coroutines = list(calls)

    async def in_slot(call: Coroutine[Any, Any, T]) -> T:
        async with slots:
            return await call

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(in_slot(call)) for call in coroutines]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    finally:
        # Those that were waiting for a slot when another one failed: Python complains about what is never awaited.
        for call in coroutines:
            call.close()
    return [task.result() for task in tasks]
