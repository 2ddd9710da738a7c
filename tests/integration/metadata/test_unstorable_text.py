"""Text that PostgreSQL cannot hold (a character NUL, keys of kilobytes) is the caller's to change: refused as such, not as a failure
of the service.
"""

import random
from typing import Any

import pytest
from aquifer.metadata.v1 import cluster_metadata_service_pb2 as pb
from aquifer_core.errors import InvalidRequestError
from aquifer_rpc.calls import call_unary
from fixtures.cluster_calls import Stub, create, register

NUL = "a\0b"
LONG = random.Random(1).randbytes(10_000).hex()


@pytest.mark.parametrize(
    ("rpc", "request_"),
    [
        (
            "CommitOffsets",
            pb.CommitOffsetsRequest(
                group_id="g", offsets=[pb.GroupOffset(topic="t", metadata=NUL)]
            ),
        ),
        (
            "CommitOffsets",
            pb.CommitOffsetsRequest(group_id=LONG, offsets=[pb.GroupOffset(topic="t")]),
        ),
        (
            "PutTransactionState",
            pb.PutTransactionStateRequest(state=pb.TransactionState(transactional_id=LONG)),
        ),
        ("FetchOffsets", pb.FetchOffsetsRequest(group_id=NUL)),
        ("DeleteTopics", pb.DeleteTopicsRequest(names=[NUL])),
        ("GetTransactionState", pb.GetTransactionStateRequest(transactional_id=NUL)),
        (
            "PutTransactionState",
            pb.PutTransactionStateRequest(
                state=pb.TransactionState(
                    transactional_id="t", partitions=[pb.TopicPartition(topic=NUL)]
                )
            ),
        ),
    ],
)
async def test_a_call_with_it_is_an_invalid_request(
    cluster_stub: Stub, rpc: str, request_: Any
) -> None:
    with pytest.raises(InvalidRequestError):
        await call_unary(getattr(cluster_stub, rpc), request_)
    await register(cluster_stub, 1)
    assert not (await create(cluster_stub, "t")).error_reason
