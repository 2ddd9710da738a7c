"""The cluster metadata over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from aquifer.metadata.v1 import cluster_metadata_service_pb2 as pb
from aquifer.metadata.v1.cluster_metadata_service_pb2_grpc import ClusterMetadataServiceStub
from aquifer_core.ids import KafkaUuid
from aquifer_rpc.calls import FOREVER, call_stream, call_unary
from aquifer_rpc.channel import Channel
from aquifer_rpc.cluster_parts import whole_changes

from aquifer_broker.cluster.metadata_convert import (
    broker_to_pb,
    config_change_to_pb,
    coordination_to_pb,
    group_offset_from_pb,
    group_offset_to_pb,
    new_partitions_to_pb,
    new_topic_to_pb,
    topic_result_from_pb,
    update_from_pb,
)
from aquifer_broker.cluster.ports import (
    ConfigChange,
    ConfigResource,
    Coordination,
    GroupOffset,
    Lease,
    NewPartitions,
    NewTopic,
    ProducerIdBlock,
    TopicResult,
)
from aquifer_broker.cluster.view import BrokerInfo, ClusterUpdate

if TYPE_CHECKING:
    from aquifer.metadata.v1.cluster_metadata_service_pb2_grpc import (
        ClusterMetadataServiceAsyncStub,
    )

__all__ = ["GrpcClusterMetadata"]

_LEASE_DEADLINE_S: Final = 3.0
_OFFSETS_DEADLINE_S: Final = 5.0

_RESOURCES = {
    ConfigResource.TOPIC: pb.CONFIG_RESOURCE_TYPE_TOPIC,
    ConfigResource.BROKER: pb.CONFIG_RESOURCE_TYPE_BROKER,
}


class GrpcClusterMetadata:
    """Implements `cluster.ports.ClusterMetadata` with ClusterMetadataService."""

    def __init__(self, channel: Channel, *, deadline_s: float = 30.0) -> None:
        self._channel = channel
        self._stub: ClusterMetadataServiceAsyncStub = ClusterMetadataServiceStub(channel)
        self._deadline_s = deadline_s

    async def register_broker(self, broker: BrokerInfo) -> Lease:
        """Registers this incarnation; idempotent."""
        answer = await call_unary(
            self._stub.RegisterBroker,
            pb.RegisterBrokerRequest(broker=broker_to_pb(broker)),
            deadline_s=_LEASE_DEADLINE_S,
        )
        return Lease(
            cluster_id=answer.cluster_id,
            broker_epoch=answer.broker_epoch,
            lease_ms=answer.lease_ms,
        )

    async def heartbeat(self, broker_id: int, broker_epoch: int) -> int:
        """Renews the lease; its length in ms."""
        answer = await call_unary(
            self._stub.Heartbeat,
            pb.HeartbeatRequest(broker_id=broker_id, broker_epoch=broker_epoch),
            deadline_s=_LEASE_DEADLINE_S,
        )
        return answer.lease_ms

    async def unregister_broker(self, broker_id: int, broker_epoch: int) -> None:
        """Ends the lease. Idempotent."""
        await call_unary(
            self._stub.UnregisterBroker,
            pb.UnregisterBrokerRequest(broker_id=broker_id, broker_epoch=broker_epoch),
            deadline_s=_LEASE_DEADLINE_S,
        )

    async def watch(self, from_version: int) -> AsyncIterator[ClusterUpdate]:
        """The cluster's changes."""
        request = pb.WatchClusterMetadataRequest(from_version=from_version, accepts_parts=True)
        stream = call_stream(self._stub.WatchClusterMetadata, request, deadline_s=FOREVER)
        async with aclosing(whole_changes(stream)) as changes:
            async for message in changes:
                yield update_from_pb(message)

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """Outcomes in the order given. Not repeated by itself: a second try would meet the topic of the first."""
        await self._channel.until_connected()
        answer = await call_unary(
            self._stub.CreateTopics,
            pb.CreateTopicsRequest(
                topics=map(new_topic_to_pb, topics), validate_only=validate_only
            ),
            deadline_s=self._deadline_s,
            retry=False,
        )
        return [topic_result_from_pb(each) for each in answer.results]

    async def delete_topics(
        self, names: Sequence[str], topic_ids: Sequence[KafkaUuid] = ()
    ) -> list[TopicResult]:
        """Outcomes: names first, then ids."""
        await self._channel.until_connected()
        answer = await call_unary(
            self._stub.DeleteTopics,
            pb.DeleteTopicsRequest(names=names, topic_ids=map(str, topic_ids)),
            deadline_s=self._deadline_s,
            retry=False,
        )
        return [topic_result_from_pb(each) for each in answer.results]

    async def create_partitions(
        self, topics: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """Outcomes in the order given."""
        await self._channel.until_connected()
        answer = await call_unary(
            self._stub.CreatePartitions,
            pb.CreatePartitionsRequest(
                topics=map(new_partitions_to_pb, topics), validate_only=validate_only
            ),
            deadline_s=self._deadline_s,
            retry=False,
        )
        return [topic_result_from_pb(each) for each in answer.results]

    async def alter_configs(
        self,
        resource: ConfigResource,
        name: str,
        changes: Sequence[ConfigChange],
        *,
        validate_only: bool = False,
    ) -> None:
        """Changes settings, all or none."""
        await call_unary(
            self._stub.AlterConfigs,
            pb.AlterConfigsRequest(
                resource_type=_RESOURCES[resource],
                resource_name=name,
                changes=map(config_change_to_pb, changes),
                validate_only=validate_only,
            ),
            deadline_s=self._deadline_s,
        )

    async def allocate_producer_ids(self, broker_id: int, count: int) -> ProducerIdBlock:
        """Reserves producer ids."""
        answer = await call_unary(
            self._stub.AllocateProducerIds,
            pb.AllocateProducerIdsRequest(broker_id=broker_id, count=count),
            deadline_s=_OFFSETS_DEADLINE_S,
        )
        return ProducerIdBlock(first_id=answer.first_producer_id, count=answer.count)

    async def commit_offsets(
        self, group_id: str, offsets: Sequence[GroupOffset], coordination: Coordination
    ) -> None:
        """Stores all or none."""
        await call_unary(
            self._stub.CommitOffsets,
            pb.CommitOffsetsRequest(
                group_id=group_id,
                offsets=map(group_offset_to_pb, offsets),
                coordinator=coordination_to_pb(coordination),
            ),
            deadline_s=_OFFSETS_DEADLINE_S,
        )

    async def fetch_offsets(
        self, group_id: str, partitions: Sequence[tuple[str, int]] | None
    ) -> list[GroupOffset]:
        """Those that exist; None: all of the group."""
        answer = await call_unary(
            self._stub.FetchOffsets,
            pb.FetchOffsetsRequest(group_id=group_id, partitions=_partitions(partitions)),
            deadline_s=_OFFSETS_DEADLINE_S,
        )
        return [group_offset_from_pb(each) for each in answer.offsets]

    async def delete_offsets(
        self,
        group_id: str,
        partitions: Sequence[tuple[str, int]] | None,
        coordination: Coordination,
    ) -> None:
        """Deletes some; None: the whole group. Idempotent."""
        await call_unary(
            self._stub.DeleteOffsets,
            pb.DeleteOffsetsRequest(
                group_id=group_id,
                partitions=_partitions(partitions),
                coordinator=coordination_to_pb(coordination),
            ),
            deadline_s=_OFFSETS_DEADLINE_S,
        )

    async def list_groups(self) -> list[str]:
        """Groups that have offsets."""
        answer = await call_unary(
            self._stub.ListGroups, pb.ListGroupsRequest(), deadline_s=_OFFSETS_DEADLINE_S
        )
        return list(answer.group_ids)


def _partitions(partitions: Sequence[tuple[str, int]] | None) -> list[pb.TopicPartition]:
    return [
        pb.TopicPartition(topic=topic, partition=partition) for topic, partition in partitions or ()
    ]
