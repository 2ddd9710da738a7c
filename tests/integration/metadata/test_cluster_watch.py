"""ClusterMetadataService through gRPC, on a real PostgreSQL: watching the cluster."""

from collections.abc import AsyncIterator
from contextlib import aclosing

from aquifer.metadata.v1 import cluster_metadata_service_pb2 as pb
from aquifer_rpc.calls import call_stream, call_unary
from aquifer_rpc.cluster_parts import whole_changes
from fixtures.cluster_calls import Stub, create, register, snapshot


async def next_change(
    messages: AsyncIterator[pb.WatchClusterMetadataResponse],
) -> pb.WatchClusterMetadataResponse:
    """The next message that is no heartbeat: one may come between any two."""
    async for message in messages:
        if message.WhichOneof("change") is not None:
            return message
    raise AssertionError("the watch ended")


async def test_a_watch_begins_with_a_snapshot_and_goes_on_with_changes_in_order(
    cluster_stub: Stub,
) -> None:
    await register(cluster_stub, 1)
    stream = call_stream(
        cluster_stub.WatchClusterMetadata, pb.WatchClusterMetadataRequest(), deadline_s=60
    )
    async with aclosing(stream) as messages:
        first = await anext(messages)
        assert [broker.broker_id for broker in first.snapshot.brokers] == [1]
        made = await create(cluster_stub, "orders")
        second = await next_change(messages)
        assert [topic.topic_id for topic in second.delta.topics] == [made.topic_id]
        assert second.version == first.version + 1
        heartbeat = await anext(messages)
        assert heartbeat.version == second.version
        assert heartbeat.WhichOneof("change") is None
        await call_unary(cluster_stub.DeleteTopics, pb.DeleteTopicsRequest(names=["orders"]))
        third = await next_change(messages)
        assert list(third.delta.deleted_topic_ids) == [made.topic_id]


async def test_a_watch_resumes_with_what_it_missed(cluster_stub: Stub) -> None:
    await register(cluster_stub, 1)
    seen = (await snapshot(cluster_stub)).version
    made = [await create(cluster_stub, name) for name in ("a", "b")]
    stream = call_stream(
        cluster_stub.WatchClusterMetadata,
        pb.WatchClusterMetadataRequest(from_version=seen),
        deadline_s=60,
    )
    async with aclosing(stream) as messages:
        missed = await anext(messages)
    assert {topic.topic_id for topic in missed.delta.topics} == {topic.topic_id for topic in made}
    assert missed.version == seen + 2


async def test_a_cluster_of_many_topics_comes_whole_to_callers_of_both_kinds(
    cluster_stub: Stub,
) -> None:
    await register(cluster_stub, 1)
    names = [f"topic-{number:02}" for number in range(20)]
    request = pb.CreateTopicsRequest(
        topics=[pb.NewTopic(name=name, num_partitions=3, replication_factor=1) for name in names]
    )
    await call_unary(cluster_stub.CreateTopics, request)
    plain = (await snapshot(cluster_stub)).snapshot
    assert [topic.name for topic in plain.topics] == names
    assert all(len(topic.partitions) == 3 for topic in plain.topics)
    watch = pb.WatchClusterMetadataRequest(accepts_parts=True)
    stream = call_stream(cluster_stub.WatchClusterMetadata, watch, deadline_s=60)
    async with aclosing(whole_changes(stream)) as messages:
        assert (await anext(messages)).snapshot == plain
