"""A failure with one partition or segment hides nothing of what was found in the others."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from aquifer.common.v1 import segment_pb2
from aquifer.manager.v1 import remote_log_manager_service_pb2 as manager_pb2
from aquifer.manager.v1 import remote_log_manager_service_pb2_grpc as manager_grpc
from aquifer.metadata.v1 import cluster_metadata_service_pb2 as cluster_pb2
from aquifer.metadata.v1 import cluster_metadata_service_pb2_grpc as cluster_grpc
from aquifer.metadata.v1 import remote_log_metadata_service_pb2 as facts_pb2
from aquifer.metadata.v1 import remote_log_metadata_service_pb2_grpc as facts_grpc
from aquifer.storage.v1 import remote_storage_service_pb2 as storage_pb2
from aquifer.storage.v1 import remote_storage_service_pb2_grpc as storage_grpc
from aquifer_core.errors import (
    AquiferError,
    ErrorReason,
    InternalError,
    PreconditionError,
    RemoteResourceNotFoundError,
    UnavailableError,
)
from aquifer_core.ids import KafkaUuid
from aquifer_rpc.server import GrpcServer
from aquifer_rpc.settings import GrpcServerSettings
from fixtures.admin_command import AdminCommand

FINISHED = segment_pb2.REMOTE_LOG_SEGMENT_STATE_COPY_SEGMENT_FINISHED
DELETING = segment_pb2.REMOTE_LOG_SEGMENT_STATE_DELETE_SEGMENT_STARTED
TOPIC_ID = str(KafkaUuid.random())
IDS = [str(KafkaUuid.random()) for _ in range(3)]
"""Of the segment of each partition."""

if TYPE_CHECKING:
    _Cluster = _Manager = _Facts = _Storage = object
else:
    _Cluster = cluster_grpc.ClusterMetadataServiceServicer
    _Manager = manager_grpc.RemoteLogManagerServiceServicer
    _Facts = facts_grpc.RemoteLogMetadataServiceServicer
    _Storage = storage_grpc.RemoteStorageServiceServicer


class Troubled(_Cluster, _Manager, _Facts, _Storage):
    """A topic of three partitions, each with one segment; the second one fails as told."""

    def __init__(self, failure: AquiferError, state_now: Any = FINISHED) -> None:
        self._failure = failure
        self._state_now = state_now
        self.hosts: list[str] = []
        self.asked: set[int] = set()

    async def WatchClusterMetadata(self, request: Any, context: Any) -> AsyncIterator[Any]:
        partitions = [
            cluster_pb2.Partition(partition=number, leader=1, replicas=[1], isr=[1])
            for number in range(3)
        ]
        topic = cluster_pb2.Topic(name="orders", topic_id=TOPIC_ID, partitions=partitions)
        brokers = [
            cluster_pb2.Broker(
                broker_id=number, alive=True, endpoints=[cluster_pb2.Endpoint(host=host, port=1)]
            )
            for number, host in enumerate(self.hosts)
        ]
        snapshot = cluster_pb2.ClusterSnapshot(topics=[topic], brokers=brokers)
        yield cluster_pb2.WatchClusterMetadataResponse(version=1, snapshot=snapshot)

    async def DescribePartition(self, request: Any, context: Any) -> Any:
        state = manager_pb2.PartitionState(topic_id_partition=request.topic_id_partition)
        return manager_pb2.DescribePartitionResponse(partition=state)

    async def RunTask(self, request: Any, context: Any) -> Any:
        self._meet(request.topic_id_partition.partition)
        action = manager_pb2.TaskAction(
            action="ORPHAN", healed=True, segment=_segment(request.topic_id_partition)
        )
        return manager_pb2.RunTaskResponse(actions=[action])

    async def ListRemoteLogSegments(self, request: Any, context: Any) -> AsyncIterator[Any]:
        segment = _segment(request.topic_id_partition)
        yield facts_pb2.ListRemoteLogSegmentsResponse(segments=[segment])

    async def VerifySegment(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self._meet(request.metadata.segment_id.topic_id_partition.partition)
        yield storage_pb2.VerifySegmentResponse(verified_bytes=10, total_bytes=10, done=True)

    async def RewrapSegment(self, request: Any, context: Any) -> Any:
        self._meet(request.metadata.segment_id.topic_id_partition.partition)
        return storage_pb2.RewrapSegmentResponse(key_id="b", previous_key_id="a", is_rewrapped=True)

    async def WarmSegment(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self._meet(request.metadata.segment_id.topic_id_partition.partition)
        yield storage_pb2.WarmSegmentResponse(warmed_bytes=10, total_bytes=10, done=True)

    async def GetSegmentHistory(self, request: Any, context: Any) -> Any:
        events = [facts_pb2.SegmentEvent(to_state=each) for each in (FINISHED, self._state_now)]
        return facts_pb2.GetSegmentHistoryResponse(events=events)

    def _meet(self, partition: int) -> None:
        self.asked.add(partition)
        if partition == 1:
            raise self._failure


def _segment(where: Any) -> segment_pb2.RemoteLogSegmentMetadata:
    return segment_pb2.RemoteLogSegmentMetadata(
        segment_id=segment_pb2.RemoteLogSegmentId(
            topic_id_partition=where, id=IDS[where.partition]
        ),
        segment_size_bytes=10,
        state=FINISHED,
        segment_leader_epochs={0: 0},
    )


@asynccontextmanager
async def serving(service: Troubled) -> AsyncIterator[AdminCommand]:
    server = GrpcServer(GrpcServerSettings(drain_grace_s=0), name="troubled")
    for add in (
        cluster_grpc.add_ClusterMetadataServiceServicer_to_server,
        manager_grpc.add_RemoteLogManagerServiceServicer_to_server,
        facts_grpc.add_RemoteLogMetadataServiceServicer_to_server,
        storage_grpc.add_RemoteStorageServiceServicer_to_server,
    ):
        server.add(cast(Any, add), cast(Any, service))
    async with server:
        address = f"127.0.0.1:{server.port}"
        yield AdminCommand(metadata=address, manager=address, storage=address)


async def test_what_was_healed_is_told_though_another_partition_failed() -> None:
    async with serving(Troubled(InternalError("it broke"))) as admin:
        outcome = await admin.run("scrub", "orders", "--heal", "--json")
    assert outcome.code == 1
    assert not outcome.document["ok"]
    assert [each["partition"] for each in outcome.document["findings"]] == [0, 2]
    [error] = outcome.document["errors"]
    assert (error["partition"], error["error_reason"]) == (1, "INTERNAL")


async def test_when_the_manager_goes_away_the_partitions_left_are_named() -> None:
    service = Troubled(UnavailableError("gone", reason=ErrorReason.NOT_READY))
    async with serving(service) as admin:
        outcome = await admin.run("scrub", "orders", "--json")
        shown = await admin.run("scrub", "orders")
    assert outcome.code == 1
    assert [each["partition"] for each in outcome.document["findings"]] == [0]
    assert [each["partition"] for each in outcome.document["errors"]] == [1, 2]
    assert service.asked == {0, 1}
    assert (shown.code, "Not scrubbed to the end" in shown.out) == (1, True)


async def test_a_segment_whose_key_is_gone_is_a_finding_and_hides_no_other() -> None:
    failure = PreconditionError(
        "the key 'a' is gone", reason=ErrorReason.ENCRYPTION_KEY_UNAVAILABLE
    )
    async with serving(Troubled(failure)) as admin:
        outcome = await admin.run("segments", "verify", "--topic", "orders", "--json")
    assert outcome.code == 1
    rows = outcome.document["segments"]
    assert [[each["message"] for each in row["findings"]] for row in rows] == [
        [],
        [f"storage at {admin.storage}: the key 'a' is gone"],
        [],
    ]


async def test_a_verification_that_is_cut_tells_what_it_has_verified() -> None:
    service = Troubled(UnavailableError("gone", reason=ErrorReason.NOT_READY))
    async with serving(service) as admin:
        outcome = await admin.run("segments", "verify", "--topic", "orders", "--json")
    assert outcome.code == 1
    document = outcome.document
    assert (document["ok"], document["verified_bytes"], len(document["segments"])) == (False, 10, 1)
    assert [each["error_reason"] for each in document["errors"]] == ["NOT_READY", "NOT_READY"]


WHOLE_TOPIC = {
    "verify": ("segments", "verify", "--topic", "orders"),
    "rewrap": ("segments", "rewrap", "orders"),
    "warm": ("segments", "warm", *IDS),
}


@pytest.mark.parametrize("command", WHOLE_TOPIC)
async def test_a_failure_with_one_segment_stops_no_other(command: str) -> None:
    service = Troubled(InternalError("it broke"))
    async with serving(service) as admin:
        outcome = await admin.run(*WHOLE_TOPIC[command], "--json")
    assert outcome.code == 1
    document = outcome.document
    assert (document["ok"], service.asked) == (False, {0, 1, 2})
    assert [row["segment_id"] for row in document["segments"]] == [IDS[0], IDS[2]]
    [error] = document["errors"]
    assert (error["segment_id"], error["error_reason"]) == (IDS[1], "INTERNAL")
    assert "it broke" in error["error"]


@pytest.mark.parametrize("command", WHOLE_TOPIC)
async def test_a_segment_that_retention_has_deleted_since_it_was_listed_is_no_failure(
    command: str,
) -> None:
    """A verification takes hours, and retention does not wait for it."""
    service = Troubled(RemoteResourceNotFoundError("gone"), state_now=DELETING)
    async with serving(service) as admin:
        outcome = await admin.run(*WHOLE_TOPIC[command], "--json")
        shown = await admin.run(*WHOLE_TOPIC[command])
    assert outcome.code == 0, outcome
    document = outcome.document
    assert (document["ok"], document["deleted"], document["errors"]) == (True, [IDS[1]], [])
    assert [row["segment_id"] for row in document["segments"]] == [IDS[0], IDS[2]]
    assert (shown.code, f"Deleted meanwhile: {IDS[1]}" in shown.out) == (0, True)


@pytest.mark.parametrize("command", WHOLE_TOPIC)
async def test_a_segment_that_the_store_has_lost_is_a_failure(command: str) -> None:
    async with serving(Troubled(RemoteResourceNotFoundError("gone"))) as admin:
        outcome = await admin.run(*WHOLE_TOPIC[command], "--json")
    document = outcome.document
    assert (outcome.code, document["ok"], document["deleted"]) == (1, False, [])


async def test_what_no_manager_tells_is_unknown_in_the_status_and_not_nothing() -> None:
    """Who watches the lag must not read 0 while the manager is away."""
    async with serving(Troubled(InternalError("never met"))) as admin:
        outcome = await replace(admin, manager="127.0.0.1:1").run("status", "--json")
    assert outcome.code == 1
    totals = outcome.document["partitions"]
    assert (totals["topics"], totals["partitions"], totals["leaderless_partitions"]) == (1, 3, 0)
    unknown = ("managed_partitions", "paused_partitions", "failing_partitions", "copy_lag_bytes")
    assert [totals[key] for key in unknown] == [None] * 4


async def test_a_broker_that_names_no_host_hides_nothing_of_the_others() -> None:
    service = Troubled(InternalError("never met"))
    service.hosts = ["127.0.0.1", "kafka..example", "127.0.0.1"]
    async with serving(service) as admin:
        outcome = await admin.run("status", "--json")
    assert outcome.code == 1, outcome.err
    brokers = outcome.document["brokers"]
    assert [each["kafka_reachable"] for each in brokers] == [False] * 3
    assert brokers[1]["error"].startswith("kafka..example:1: ")
