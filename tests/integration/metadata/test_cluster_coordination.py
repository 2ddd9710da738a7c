"""ClusterMetadataService through gRPC, on a real PostgreSQL: producer ids, offsets of groups, transactional ids."""

import pytest
from aquifer.metadata.v1 import cluster_metadata_service_pb2 as pb
from aquifer_core.errors import (
    ConcurrentUpdateError,
    InvalidRequestError,
)
from aquifer_rpc.calls import call_unary
from fixtures.cluster_calls import Stub


async def test_producer_ids_are_never_given_twice(cluster_stub: Stub) -> None:
    request = pb.AllocateProducerIdsRequest(broker_id=1, count=10)
    blocks = [await call_unary(cluster_stub.AllocateProducerIds, request) for _ in range(3)]
    ids = [first.first_producer_id + n for first in blocks for n in range(first.count)]
    assert len(set(ids)) == 30
    with pytest.raises(InvalidRequestError):
        await call_unary(
            cluster_stub.AllocateProducerIds, pb.AllocateProducerIdsRequest(count=10_001)
        )


async def test_offsets_of_a_group_are_stored_read_and_deleted(cluster_stub: Stub) -> None:
    offset = pb.GroupOffset(
        topic="t", partition=1, offset=5, leader_epoch=2, metadata="m", commit_timestamp_ms=9
    )
    commit = pb.CommitOffsetsRequest(group_id="g", offsets=[offset])
    await call_unary(cluster_stub.CommitOffsets, commit)
    await call_unary(cluster_stub.CommitOffsets, commit)
    asked = pb.FetchOffsetsRequest(
        group_id="g",
        partitions=[pb.TopicPartition(topic="t", partition=number) for number in (0, 1)],
    )
    assert list((await call_unary(cluster_stub.FetchOffsets, asked)).offsets) == [offset]
    assert list((await call_unary(cluster_stub.ListGroups, pb.ListGroupsRequest())).group_ids) == [
        "g"
    ]
    delete = pb.DeleteOffsetsRequest(group_id="g")
    await call_unary(cluster_stub.DeleteOffsets, delete)
    await call_unary(cluster_stub.DeleteOffsets, delete)
    assert not (await call_unary(cluster_stub.FetchOffsets, asked)).offsets


async def test_transaction_states_compare_their_version(cluster_stub: Stub) -> None:
    state = pb.TransactionState(
        transactional_id="t",
        producer_id=7,
        producer_epoch=1,
        timeout_ms=60_000,
        state="Ongoing",
        partitions=[pb.TopicPartition(topic="orders", partition=3)],
        start_timestamp_ms=5,
    )

    async def put(version: int) -> int:
        state.version = version
        request = pb.PutTransactionStateRequest(state=state)
        answer: pb.PutTransactionStateResponse = await call_unary(
            cluster_stub.PutTransactionState, request
        )
        return answer.version

    asked = pb.GetTransactionStateRequest(transactional_id="t")
    assert not (await call_unary(cluster_stub.GetTransactionState, asked)).HasField("state")
    assert await put(0) == 1
    assert await put(1) == 2
    for version in (0, 1, 5):
        with pytest.raises(ConcurrentUpdateError):
            await put(version)
    state.version = 2
    assert (await call_unary(cluster_stub.GetTransactionState, asked)).state == state
