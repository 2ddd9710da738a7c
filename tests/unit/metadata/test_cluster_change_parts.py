"""Changes of the cluster in messages of bounded size, and whole again on the other side."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

import pytest
from aquifer.metadata.v1 import cluster_metadata_service_pb2 as pb
from aquifer_core.ids import KafkaUuid
from aquifer_metadata.domain.cluster import (
    Broker,
    ClusterChange,
    ClusterDelta,
    ClusterSnapshot,
    Partition,
    Topic,
)
from aquifer_metadata.servicer.cluster_change_parts import change_parts, change_to_pb
from aquifer_metadata.servicer.cluster_convert import topic_to_pb
from aquifer_rpc.cluster_parts import whole_changes

BROKER = Broker(
    broker_id=1, incarnation="x", endpoints=(), rack="", broker_log_address="", log_dirs=()
)


def topic(name: str, partitions: int) -> Topic:
    return Topic(
        topic_id=KafkaUuid.random(),
        name=name,
        partitions=tuple(
            Partition(
                partition=number,
                replicas=(1, 2, 3),
                isr=(1, 2, 3),
                leader=1,
                leader_epoch=300,
                partition_epoch=300,
                target_replicas=(),
            )
            for number in range(partitions)
        ),
        configs={"retention.ms": "5"},
    )


def snapshot(*topics: Topic) -> ClusterSnapshot:
    return ClusterSnapshot(
        cluster_id="c", brokers=(BROKER,), topics=topics, broker_configs={"1": {"a": "b"}}
    )


def delta(*topics: Topic) -> ClusterDelta:
    deleted = (KafkaUuid.random(),)
    return ClusterDelta(
        brokers=(BROKER,), topics=topics, deleted_topic_ids=deleted, broker_configs={"1": {}}
    )


async def joined(
    parts: Iterable[pb.WatchClusterMetadataResponse],
) -> list[pb.WatchClusterMetadataResponse]:
    async def stream() -> AsyncGenerator[pb.WatchClusterMetadataResponse, None]:
        for part in parts:
            # As if it had come over the wire: each message on its own.
            yield pb.WatchClusterMetadataResponse.FromString(part.SerializeToString())

    async with aclosing(whole_changes(stream())) as changes:
        return [change async for change in changes]


@pytest.mark.parametrize("make", [snapshot, delta])
@pytest.mark.parametrize("sizes", [[], [1], [3, 0, 2, 5], [25, 1, 10, 11]])
async def test_parts_are_the_change_again(make: object, sizes: list[int]) -> None:
    content = make(*(topic(f"t{number}", size) for number, size in enumerate(sizes)))  # type: ignore[operator]
    change = ClusterChange(version=7, content=content)
    for part_bytes in (1, 200, 1024 * 1024):
        parts = list(change_parts(change, part_bytes, piece_partitions=10))
        assert [part.continues for part in parts] == [True] * (len(parts) - 1) + [False]
        assert await joined(parts) == [change_to_pb(change)]


async def test_no_message_is_larger_than_a_part_and_a_topic() -> None:
    topics = [topic(f"t{number}", 100) for number in range(30)]
    change = ClusterChange(version=7, content=snapshot(*topics))
    largest = max(topic_to_pb(each).ByteSize() for each in topics)
    parts = list(change_parts(change, part_bytes=10_000))
    assert len(parts) > 5
    assert max(part.ByteSize() for part in parts) < 10_000 + largest + 100


async def test_changes_follow_one_another_and_heartbeats_come_as_they_are() -> None:
    changes = [
        ClusterChange(version=1, content=snapshot(topic("a", 1), topic("b", 1))),
        ClusterChange(version=1),
        ClusterChange(version=2, content=delta(topic("a", 2), topic("b", 2))),
    ]
    parts = [part for change in changes for part in change_parts(change, 1)]
    assert await joined(parts) == [change_to_pb(change) for change in changes]


async def test_what_a_broken_stream_began_is_dropped() -> None:
    first, second = [
        ClusterChange(version=version, content=delta(topic("a", 2), topic("b", 2)))
        for version in (1, 2)
    ]
    parts = [*change_parts(first, 1), *list(change_parts(second, 1))[:1]]
    assert await joined(parts) == [change_to_pb(first)]
