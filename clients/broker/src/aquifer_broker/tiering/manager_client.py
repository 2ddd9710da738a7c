"""What a broker asks of the manager, as values of the domain."""

from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aquifer.common.v1 import partition_pb2
from aquifer.manager.v1 import remote_log_manager_service_pb2 as pb
from aquifer.manager.v1.remote_log_manager_service_pb2_grpc import RemoteLogManagerServiceStub
from aquifer_core.errors import InternalError
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_rpc import convert
from aquifer_rpc.calls import call_stream, call_unary
from aquifer_rpc.channel import Channel
from aquifer_rpc.large_messages import large_bytes_or

from aquifer_broker.log.log_values import TimestampAndOffset
from aquifer_broker.tiering.remote_fetch import AbortedRange, FetchPlan, RemoteFetch

if TYPE_CHECKING:
    from aquifer.manager.v1.remote_log_manager_service_pb2_grpc import (
        RemoteLogManagerServiceAsyncStub,
    )

__all__ = [
    "ManagerClient",
    "PartitionRole",
    "Registration",
    "TieringConfig",
]

_CALL_DEADLINE_S: Final = 5.0
_SERVICE: Final = pb.DESCRIPTOR.services_by_name["RemoteLogManagerService"].full_name


@dataclass(frozen=True, slots=True, kw_only=True)
class TieringConfig:
    """Settings of a topic that the manager works by."""

    remote_storage_enable: bool
    retention_ms: int
    retention_bytes: int
    local_retention_ms: int
    local_retention_bytes: int
    remote_log_copy_disable: bool
    remote_log_retention_minutes: int | None = None
    remote_log_retention_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRole:
    """A tiered partition of this broker; `leader_epoch` is the leader's, whoever leads."""

    topic_id_partition: TopicIdPartition
    is_leader: bool
    leader_epoch: int
    config: TieringConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A registration with one incarnation of a manager."""

    lease_ms: int
    manager_incarnation: str


class ManagerClient:
    """Calls of one broker. Every method raises what the manager answers, `UnavailableError` when it does not.

    Announcements of one broker go to the same replica while it answers; reads of one partition as well, for the sake of its
    index cache.
    """

    def __init__(self, channel: Channel, *, broker_id: int, incarnation: KafkaUuid) -> None:
        self._stub: RemoteLogManagerServiceAsyncStub = RemoteLogManagerServiceStub(channel)
        self._fetch = channel.unary_stream(
            f"/{_SERVICE}/Fetch",
            request_serializer=pb.FetchRequest.SerializeToString,
            response_deserializer=large_bytes_or(
                pb.FetchResponse.FromString, pb.FetchResponse.DATA_FIELD_NUMBER
            ),
        )
        self._broker_id = broker_id
        self._incarnation = str(incarnation)
        self._affinity = f"broker {broker_id}".encode()

    async def register(self, broker_log_address: str) -> Registration:
        """Registers this incarnation. Idempotent."""
        answer = await call_unary(
            self._stub.RegisterBroker,
            pb.RegisterBrokerRequest(
                broker_id=self._broker_id,
                incarnation=self._incarnation,
                broker_log_address=broker_log_address,
            ),
            deadline_s=_CALL_DEADLINE_S,
            retry=False,
            affinity=self._affinity,
        )
        return Registration(
            lease_ms=answer.lease_ms, manager_incarnation=answer.manager_incarnation
        )

    async def heartbeat(self, rolled: Collection[TopicIdPartition]) -> int:
        """Keeps the registration; the lease in ms.

        Raises:
            RemoteResourceNotFoundError: (BROKER_NOT_FOUND) not registered; register and announce everything again.
        """
        answer = await call_unary(
            self._stub.Heartbeat,
            pb.HeartbeatRequest(
                broker_id=self._broker_id,
                incarnation=self._incarnation,
                rolled=[convert.tip_to_pb(each) for each in rolled],
            ),
            deadline_s=_CALL_DEADLINE_S,
            retry=False,
            affinity=self._affinity,
        )
        return answer.lease_ms

    async def announce(self, roles: Sequence[PartitionRole]) -> None:
        """Says what this broker leads and follows. Idempotent.

        Raises:
            RemoteResourceNotFoundError: (BROKER_NOT_FOUND) as `heartbeat`.
        """
        await call_unary(
            self._stub.OnLeadershipChange,
            pb.OnLeadershipChangeRequest(
                broker_id=self._broker_id,
                incarnation=self._incarnation,
                leaders=[_role_to_pb(role) for role in roles if role.is_leader],
                followers=[_role_to_pb(role) for role in roles if not role.is_leader],
            ),
            deadline_s=_CALL_DEADLINE_S,
            retry=False,
            affinity=self._affinity,
        )

    async def change_configs(self, configs: dict[KafkaUuid, TieringConfig]) -> None:
        """Says that topics have other settings. Idempotent."""
        await call_unary(
            self._stub.OnTopicConfigChange,
            pb.OnTopicConfigChangeRequest(
                topics=[
                    pb.TopicConfigChange(topic_id=str(topic_id), config=_config_to_pb(config))
                    for topic_id, config in configs.items()
                ]
            ),
            deadline_s=_CALL_DEADLINE_S,
            retry=False,
            affinity=self._affinity,
        )

    async def stop(self, partitions: Collection[TopicIdPartition], *, delete_remote: bool) -> None:
        """Says that partitions are no longer this broker's. Idempotent."""
        await call_unary(
            self._stub.StopPartitions,
            pb.StopPartitionsRequest(
                broker_id=self._broker_id,
                partitions=[convert.tip_to_pb(each) for each in partitions],
                delete_remote=delete_remote,
            ),
            deadline_s=_CALL_DEADLINE_S,
            retry=False,
            affinity=self._affinity,
        )

    async def delete_records(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int, log_start_offset: int
    ) -> None:
        """Says that the log start was raised. Idempotent."""
        await call_unary(
            self._stub.DeleteRecords,
            pb.DeleteRecordsRequest(
                topic_id_partition=convert.tip_to_pb(topic_id_partition),
                leader_epoch=leader_epoch,
                log_start_offset=log_start_offset,
            ),
            deadline_s=_CALL_DEADLINE_S,
            retry=False,
            affinity=self._affinity,
        )

    async def fetch(
        self, request: RemoteFetch, deadline_s: float
    ) -> AsyncGenerator[FetchPlan | bytes | memoryview, None]:
        """The plan first, then record bytes; together whole batches. Closing the iterator stops the read.

        Raises:
            OffsetOutOfRangeError, RemoteResourceNotFoundError, QuotaExceededError, UnavailableError, CorruptDataError.
        """
        message = pb.FetchRequest(
            topic_id_partition=convert.tip_to_pb(request.topic_id_partition),
            leader_epoch=request.leader_epoch,
            fetch_offset=request.fetch_offset,
            max_bytes=request.max_bytes,
            min_one_batch=request.min_one_batch,
            isolation_level=convert.isolation_to_pb(request.isolation),
            lineage=convert.lineage_to_pb(dict(request.lineage)),
            local_log_start_offset=request.local_log_start_offset,
        )
        answers = call_stream(
            self._fetch,
            message,
            deadline_s=deadline_s,
            retry=False,
            affinity=_affinity_of(request.topic_id_partition),
        )
        async with aclosing(answers):
            async for answer in answers:
                if isinstance(answer, memoryview):
                    yield answer
                elif answer.WhichOneof("message") == "plan":
                    yield _plan_from_pb(answer.plan)
                else:
                    yield answer.data

    async def plan_fetch(
        self, request: RemoteFetch, deadline_s: float, *, reach_bytes: int = 0, fresh: bool = False
    ) -> FetchPlan:
        """The plan alone.

        Args:
            request: what is to be read.
            deadline_s: for the answer.
            reach_bytes: how far a reusable plan should reach; 0: a plan for one read will do.
            fresh: what an earlier plan named is gone.

        Raises:
            OffsetOutOfRangeError, RemoteResourceNotFoundError, QuotaExceededError, UnavailableError.
        """
        answer = await call_unary(
            self._stub.PlanFetch,
            pb.PlanFetchRequest(
                topic_id_partition=convert.tip_to_pb(request.topic_id_partition),
                leader_epoch=request.leader_epoch,
                fetch_offset=request.fetch_offset,
                max_bytes=request.max_bytes,
                min_one_batch=request.min_one_batch,
                isolation_level=convert.isolation_to_pb(request.isolation),
                lineage=convert.lineage_to_pb(dict(request.lineage)),
                reach_bytes=reach_bytes,
                fresh=fresh,
                local_log_start_offset=request.local_log_start_offset,
            ),
            deadline_s=deadline_s,
            retry=False,
            affinity=_affinity_of(request.topic_id_partition),
        )
        if not answer.HasField("plan"):
            raise InternalError("the manager answered without a plan")
        return _plan_from_pb(answer.plan)

    async def find_offset(
        self,
        topic_id_partition: TopicIdPartition,
        lineage: dict[int, int],
        timestamp_ms: int,
        *,
        log_start_offset: int,
        local_log_start_offset: int,
        deadline_s: float,
    ) -> TimestampAndOffset | None:
        """First remote record at or after a time; None: none is remote."""
        answer = await call_unary(
            self._stub.FindOffsetForTimestamp,
            pb.FindOffsetForTimestampRequest(
                topic_id_partition=convert.tip_to_pb(topic_id_partition),
                lineage=convert.lineage_to_pb(lineage),
                timestamp_ms=timestamp_ms,
                log_start_offset=log_start_offset,
                local_log_start_offset=local_log_start_offset,
            ),
            deadline_s=deadline_s,
            affinity=_affinity_of(topic_id_partition),
        )
        if not answer.HasField("offset"):
            return None
        return TimestampAndOffset(
            timestamp_ms=answer.timestamp_ms,
            offset=answer.offset,
            leader_epoch=answer.leader_epoch,
        )


def _affinity_of(topic_id_partition: TopicIdPartition) -> bytes:
    return str(topic_id_partition).encode()


def _role_to_pb(role: PartitionRole) -> pb.LeaderPartition:
    return pb.LeaderPartition(
        topic_id_partition=convert.tip_to_pb(role.topic_id_partition),
        leader_epoch=role.leader_epoch,
        config=_config_to_pb(role.config),
    )


def _config_to_pb(config: TieringConfig) -> partition_pb2.TopicConfig:
    return partition_pb2.TopicConfig(
        remote_storage_enable=config.remote_storage_enable,
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        local_retention_ms=config.local_retention_ms,
        local_retention_bytes=config.local_retention_bytes,
        remote_log_copy_disable=config.remote_log_copy_disable,
        remote_log_retention_minutes=config.remote_log_retention_minutes,
        remote_log_retention_bytes=config.remote_log_retention_bytes,
    )


def _plan_from_pb(plan: pb.FetchPlan) -> FetchPlan:
    return FetchPlan(
        segment=(
            convert.segment_metadata_from_pb(plan.segment) if plan.HasField("segment") else None
        ),
        fetch_offset=plan.fetch_offset,
        max_bytes=plan.max_bytes,
        aborted=tuple(
            AbortedRange(
                producer_id=each.producer_id,
                first_offset=each.first_offset,
                last_offset=each.last_offset,
            )
            for each in plan.aborted_transactions
        ),
        next_segment=(
            convert.segment_metadata_from_pb(plan.next_segment, "next_segment")
            if plan.HasField("next_segment")
            else None
        ),
        reusable=plan.reusable,
        following=tuple(map(convert.segment_metadata_from_pb, plan.following)),
    )
