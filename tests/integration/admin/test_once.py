"""What a second try would tell wrongly is asked for once, also when the answer is lost on the way."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, cast

import pytest
from aquifer.manager.v1 import remote_log_manager_service_pb2 as manager_pb2
from aquifer.manager.v1 import remote_log_manager_service_pb2_grpc as manager_grpc
from aquifer.metadata.v1 import cluster_metadata_service_pb2 as cluster_pb2
from aquifer.metadata.v1 import cluster_metadata_service_pb2_grpc as cluster_grpc
from aquifer_core.errors import ErrorReason, UnavailableError
from aquifer_core.ids import KafkaUuid
from aquifer_rpc.server import GrpcServer
from aquifer_rpc.settings import GrpcServerSettings
from fixtures.admin_command import AdminCommand

if TYPE_CHECKING:
    _Cluster = _Manager = object
else:
    _Cluster = cluster_grpc.ClusterMetadataServiceServicer
    _Manager = manager_grpc.RemoteLogManagerServiceServicer


class Forgetful(_Cluster, _Manager):
    """Does what it is asked for, and loses the answer."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def WatchClusterMetadata(self, request: Any, context: Any) -> AsyncIterator[Any]:
        partition = cluster_pb2.Partition(partition=0, leader=1, replicas=[1], isr=[1])
        topic = cluster_pb2.Topic(
            name="orders", topic_id=str(KafkaUuid.random()), partitions=[partition]
        )
        yield cluster_pb2.WatchClusterMetadataResponse(
            version=1, snapshot=cluster_pb2.ClusterSnapshot(topics=[topic])
        )

    async def DescribePartition(self, request: Any, context: Any) -> Any:
        state = manager_pb2.PartitionState(topic_id_partition=request.topic_id_partition)
        return manager_pb2.DescribePartitionResponse(partition=state)

    async def CreateTopics(self, request: Any, context: Any) -> Any:
        self._lose("CreateTopics")

    async def DeleteTopics(self, request: Any, context: Any) -> Any:
        self._lose("DeleteTopics")

    async def CreatePartitions(self, request: Any, context: Any) -> Any:
        self._lose("CreatePartitions")

    async def RunTask(self, request: Any, context: Any) -> Any:
        self._lose("RunTask")

    def _lose(self, method: str) -> None:
        self.asked.append(method)
        raise UnavailableError("the answer is lost", reason=ErrorReason.NOT_READY)


@pytest.mark.parametrize(
    ("arguments", "method"),
    [
        (("topics", "create", "orders"), "CreateTopics"),
        (("topics", "delete", "orders", "--yes"), "DeleteTopics"),
        (("topics", "alter", "orders", "--partitions", "2"), "CreatePartitions"),
        (("partitions", "run-task", "orders", "0", "expiration"), "RunTask"),
        (("scrub", "orders", "--heal"), "RunTask"),
    ],
)
async def test_a_request_whose_answer_is_lost_is_not_repeated(
    arguments: tuple[str, ...], method: str
) -> None:
    service = Forgetful()
    server = GrpcServer(GrpcServerSettings(drain_grace_s=0), name="forgetful")
    server.add(cluster_grpc.add_ClusterMetadataServiceServicer_to_server, cast(Any, service))
    server.add(manager_grpc.add_RemoteLogManagerServiceServicer_to_server, cast(Any, service))
    async with server:
        address = f"127.0.0.1:{server.port}"
        outcome = await AdminCommand(metadata=address, manager=address).run(*arguments)
    assert outcome.code == 1
    assert "the answer is lost" in outcome.err
    assert service.asked == [method]
