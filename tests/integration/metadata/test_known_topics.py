"""Topics created under an id whose remote segments are known: after a rebuild, or to take a deletion back."""

from collections.abc import AsyncIterator

import builders
import pytest
from aquifer.metadata.v1 import cluster_metadata_service_pb2 as pb
from aquifer.metadata.v1.cluster_metadata_service_pb2_grpc import ClusterMetadataServiceStub
from aquifer_client import GrpcRemoteLogMetadataManager
from aquifer_core.errors import InvalidRequestError
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_core.state import RemotePartitionDeleteState
from aquifer_metadata.app import running_server
from aquifer_metadata.settings import RemoteLogSettings
from aquifer_rpc.calls import call_unary
from aquifer_rpc.channel import connect
from aquifer_rpc.server import GrpcServer
from contract.remote_log_metadata.steps import brought_to, deletions, found, move_deletion
from fixtures.cluster_calls import Stub, create, partition_of, register
from fixtures.metadata_service import metadata_settings

TIERED = {"remote.storage.enable": "true"}
MARKED, STARTED, FINISHED = RemotePartitionDeleteState


@pytest.fixture
async def rlmm(metadata_server: GrpcServer) -> AsyncIterator[GrpcRemoteLogMetadataManager]:
    manager = GrpcRemoteLogMetadataManager()
    await manager.configure({"endpoints": f"127.0.0.1:{metadata_server.port}"})
    yield manager
    await manager.close()


async def delete(stub: Stub, name: str) -> None:
    answer = await call_unary(stub.DeleteTopics, pb.DeleteTopicsRequest(names=[name]))
    assert not answer.results[0].error_reason


async def test_a_rebuilt_topic_is_attached_above_the_epochs_of_its_segments(
    cluster_stub: Stub, rlmm: GrpcRemoteLogMetadataManager
) -> None:
    """What an import writes carries no leader's epoch; a new leader of epoch 0 would otherwise hide what was copied."""
    await register(cluster_stub, 1)
    partition = builders.topic_id_partition("orders", 1)
    segment = await brought_to(rlmm, builders.remote_segment(partition, 0, 99, {4: 0, 9: 50}))
    topic_id = str(partition.topic_id)
    made = await create(cluster_stub, "orders", num_partitions=3, topic_id=topic_id)
    assert made.topic_id == topic_id
    epochs = [(await partition_of(cluster_stub, "orders", n)).leader_epoch for n in range(3)]
    assert epochs == [0, 10, 0]
    assert await found(rlmm, partition, 9, 60) == segment.segment_id
    added = builders.remote_segment(partition, 100, 199, {10: 100})
    await rlmm.add_remote_log_segment_metadata(added, leader_epoch=10)


async def test_an_id_that_does_not_fit_is_refused_with_its_reason(
    cluster_stub: Stub, rlmm: GrpcRemoteLogMetadataManager
) -> None:
    await register(cluster_stub, 1)
    partition = builders.topic_id_partition("orders", 2)
    await brought_to(rlmm, builders.remote_segment(partition, 0, 99))
    topic_id = str(partition.topic_id)

    async def refusal(name: str, **fields: object) -> str:
        return (await create(cluster_stub, name, **fields)).error_reason

    assert await refusal("other", topic_id=topic_id, num_partitions=3) == "INVALID_TOPIC"
    assert await refusal("orders", topic_id=topic_id, num_partitions=2) == "INVALID_PARTITIONS"
    assert await refusal("orders", topic_id=str(KafkaUuid.ZERO)) == "INVALID_TOPIC"
    assert await refusal("orders", topic_id=topic_id, num_partitions=3) == ""
    assert await refusal("second", topic_id=topic_id) == "TOPIC_ALREADY_EXISTS"
    with pytest.raises(InvalidRequestError, match="topic_id"):
        await create(cluster_stub, "third", topic_id="not an id")


async def test_a_check_alone_attaches_nothing(
    cluster_stub: Stub, rlmm: GrpcRemoteLogMetadataManager
) -> None:
    await register(cluster_stub, 1)
    made = await create(cluster_stub, "orders", configs=TIERED)
    await delete(cluster_stub, "orders")
    new = pb.NewTopic(name="orders", num_partitions=1, replication_factor=1, topic_id=made.topic_id)
    request = pb.CreateTopicsRequest(topics=[new], validate_only=True)
    answer = await call_unary(cluster_stub.CreateTopics, request)
    assert answer.results[0].error_reason == ""
    assert [each.state for each in await deletions(rlmm)] == [MARKED]


@pytest.mark.parametrize("begun", [[], [STARTED], [STARTED, FINISHED]])
async def test_a_deletion_is_taken_back_until_somebody_carries_it_out(
    cluster_stub: Stub,
    rlmm: GrpcRemoteLogMetadataManager,
    begun: list[RemotePartitionDeleteState],
) -> None:
    await register(cluster_stub, 1)
    made = await create(cluster_stub, "orders", num_partitions=2, configs=TIERED)
    topic_id = KafkaUuid.parse(made.topic_id)
    partitions = [TopicIdPartition(topic_id, "orders", number) for number in range(2)]
    segment = await brought_to(rlmm, builders.remote_segment(partitions[0], 0, 99))
    await delete(cluster_stub, "orders")
    await move_deletion(rlmm, partitions[1], *begun)
    again = await create(
        cluster_stub, "orders", num_partitions=2, configs=TIERED, topic_id=made.topic_id
    )
    if begun:
        assert again.error_reason == "INVALID_PARTITION_TRANSITION"
        assert partitions[0] in [each.topic_id_partition for each in await deletions(rlmm)]
        return
    assert again.error_reason == ""
    assert await deletions(rlmm) == []
    assert await found(rlmm, partitions[0], 0, 50) == segment.segment_id
    added = builders.remote_segment(partitions[0], 100, 199, {1: 100})
    await rlmm.add_remote_log_segment_metadata(added, leader_epoch=1)
    await delete(cluster_stub, "orders")
    assert [each.state for each in await deletions(rlmm)] == [MARKED, MARKED]


async def test_nobody_is_told_to_delete_before_the_grace_is_over(metadata_dsn: str) -> None:
    plain = metadata_settings(metadata_dsn)
    patient = plain.model_copy(update={"remote_log": RemoteLogSettings(undelete_grace_s=3600.0)})
    async with (
        running_server(patient) as server,
        connect(f"127.0.0.1:{server.port}") as channel,
        running_server(plain) as hasty,
    ):
        stub = ClusterMetadataServiceStub(channel)
        listings = []
        await register(stub, 1)
        await create(stub, "orders", configs=TIERED)
        await delete(stub, "orders")
        for port in (server.port, hasty.port):
            rlmm = GrpcRemoteLogMetadataManager()
            await rlmm.configure({"endpoints": f"127.0.0.1:{port}"})
            listings.append([each.state for each in await deletions(rlmm)])
            if port == hasty.port:
                [waiting] = await deletions(rlmm)
                await move_deletion(rlmm, waiting.topic_id_partition, STARTED)
            await rlmm.close()
        assert listings == [[], [MARKED]]
        rlmm = GrpcRemoteLogMetadataManager()
        await rlmm.configure({"endpoints": f"127.0.0.1:{server.port}"})
        assert [each.state for each in await deletions(rlmm)] == [STARTED], "begun is begun"
        await rlmm.close()
