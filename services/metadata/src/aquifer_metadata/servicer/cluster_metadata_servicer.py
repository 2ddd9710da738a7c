"""ClusterMetadataService: converts, calls, converts back."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc.aio
from aquifer.metadata.v1 import cluster_metadata_service_pb2 as pb
from aquifer.metadata.v1.cluster_metadata_service_pb2_grpc import ClusterMetadataServiceServicer
from aquifer_rpc.convert import uuid_from_pb

from aquifer_metadata.domain import ports
from aquifer_metadata.domain.cluster import TopicPartition
from aquifer_metadata.domain.producer_ids import check_block_size
from aquifer_metadata.servicer import cluster_convert as convert
from aquifer_metadata.servicer.cluster_change_parts import change_parts, change_to_pb

# In quotes: the class is generic in its stub only.
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStores:
    """Everything the service stands on."""

    brokers: ports.BrokerStore
    topics: ports.TopicStore
    configs: ports.ConfigStore
    partitions: ports.PartitionStore
    groups: ports.GroupStore
    transactions: ports.TransactionStore
    watch: ports.ClusterWatch


class ClusterMetadataServicer(ClusterMetadataServiceServicer):
    """Serves the cluster's state."""

    def __init__(self, stores: ClusterStores) -> None:
        self._stores = stores

    async def RegisterBroker(
        self, request: pb.RegisterBrokerRequest, context: Context
    ) -> pb.RegisterBrokerResponse:
        """See the contract."""
        lease = await self._stores.brokers.register(convert.broker_from_pb(request.broker))
        return pb.RegisterBrokerResponse(
            cluster_id=lease.cluster_id, broker_epoch=lease.broker_epoch, lease_ms=lease.lease_ms
        )

    async def Heartbeat(
        self, request: pb.HeartbeatRequest, context: Context
    ) -> pb.HeartbeatResponse:
        """See the contract."""
        lease = await self._stores.brokers.heartbeat(request.broker_id, request.broker_epoch)
        return pb.HeartbeatResponse(lease_ms=lease.lease_ms, version=lease.version)

    async def UnregisterBroker(
        self, request: pb.UnregisterBrokerRequest, context: Context
    ) -> pb.UnregisterBrokerResponse:
        """See the contract."""
        await self._stores.brokers.unregister(request.broker_id, request.broker_epoch)
        return pb.UnregisterBrokerResponse()

    async def CreateTopics(
        self, request: pb.CreateTopicsRequest, context: Context
    ) -> pb.CreateTopicsResponse:
        """See the contract."""
        created = await self._stores.topics.create(
            [convert.new_topic_from_pb(topic) for topic in request.topics],
            validate_only=request.validate_only,
        )
        return pb.CreateTopicsResponse(
            results=[convert.topic_result_to_pb(result) for result in created.results],
            version=created.version,
        )

    async def DeleteTopics(
        self, request: pb.DeleteTopicsRequest, context: Context
    ) -> pb.DeleteTopicsResponse:
        """See the contract."""
        deleted = await self._stores.topics.delete(
            request.names, [uuid_from_pb(text, "topic_ids") for text in request.topic_ids]
        )
        return pb.DeleteTopicsResponse(
            results=[convert.topic_result_to_pb(result) for result in deleted.results],
            version=deleted.version,
        )

    async def CreatePartitions(
        self, request: pb.CreatePartitionsRequest, context: Context
    ) -> pb.CreatePartitionsResponse:
        """See the contract."""
        grown = await self._stores.topics.add_partitions(
            [convert.new_partitions_from_pb(topic) for topic in request.topics],
            validate_only=request.validate_only,
        )
        return pb.CreatePartitionsResponse(
            results=[convert.topic_result_to_pb(result) for result in grown.results],
            version=grown.version,
        )

    async def AlterConfigs(
        self, request: pb.AlterConfigsRequest, context: Context
    ) -> pb.AlterConfigsResponse:
        """See the contract."""
        configs, version = await self._stores.configs.alter(
            convert.config_resource_from_pb(request.resource_type, request.resource_name),
            [convert.config_change_from_pb(change) for change in request.changes],
            validate_only=request.validate_only,
        )
        return pb.AlterConfigsResponse(configs=configs, version=version)

    async def DescribeConfigs(
        self, request: pb.DescribeConfigsRequest, context: Context
    ) -> pb.DescribeConfigsResponse:
        """See the contract."""
        configs = await self._stores.configs.describe(
            convert.config_resource_from_pb(request.resource_type, request.resource_name)
        )
        return pb.DescribeConfigsResponse(configs=configs)

    async def AlterPartition(
        self, request: pb.AlterPartitionRequest, context: Context
    ) -> pb.AlterPartitionResponse:
        """See the contract."""
        partition = await self._stores.partitions.change_isr(convert.isr_change_from_pb(request))
        return pb.AlterPartitionResponse(partition=convert.partition_to_pb(partition))

    async def ElectLeaders(
        self, request: pb.ElectLeadersRequest, context: Context
    ) -> pb.ElectLeadersResponse:
        """See the contract."""
        version = await self._stores.partitions.elect_leaders(
            convert.topic_partitions_from_pb(request.partitions), unclean=request.unclean
        )
        return pb.ElectLeadersResponse(version=version)

    async def ReassignPartitions(
        self, request: pb.ReassignPartitionsRequest, context: Context
    ) -> pb.ReassignPartitionsResponse:
        """See the contract."""
        version = await self._stores.partitions.reassign(
            {
                TopicPartition(topic=moved.topic, partition=moved.partition): tuple(moved.replicas)
                for moved in request.reassignments
            }
        )
        return pb.ReassignPartitionsResponse(version=version)

    async def WatchClusterMetadata(
        self, request: pb.WatchClusterMetadataRequest, context: Context
    ) -> AsyncIterator[pb.WatchClusterMetadataResponse]:
        """See the contract."""
        async for change in self._stores.watch.changes(request.from_version):
            parts = change_parts(change) if request.accepts_parts else [change_to_pb(change)]
            for part in parts:
                yield part

    async def AllocateProducerIds(
        self, request: pb.AllocateProducerIdsRequest, context: Context
    ) -> pb.AllocateProducerIdsResponse:
        """See the contract."""
        count = check_block_size(request.count)
        first = await self._stores.transactions.allocate_producer_ids(count)
        return pb.AllocateProducerIdsResponse(first_producer_id=first, count=count)

    async def CommitOffsets(
        self, request: pb.CommitOffsetsRequest, context: Context
    ) -> pb.CommitOffsetsResponse:
        """See the contract."""
        await self._stores.groups.commit(
            request.group_id,
            [convert.group_offset_from_pb(offset) for offset in request.offsets],
            convert.group_coordinator_from_pb(request),
        )
        return pb.CommitOffsetsResponse()

    async def FetchOffsets(
        self, request: pb.FetchOffsetsRequest, context: Context
    ) -> pb.FetchOffsetsResponse:
        """See the contract."""
        offsets = await self._stores.groups.fetch(
            request.group_id, convert.topic_partitions_from_pb(request.partitions)
        )
        return pb.FetchOffsetsResponse(
            offsets=[convert.group_offset_to_pb(offset) for offset in offsets]
        )

    async def DeleteOffsets(
        self, request: pb.DeleteOffsetsRequest, context: Context
    ) -> pb.DeleteOffsetsResponse:
        """See the contract."""
        await self._stores.groups.delete(
            request.group_id,
            convert.topic_partitions_from_pb(request.partitions),
            convert.group_coordinator_from_pb(request),
        )
        return pb.DeleteOffsetsResponse()

    async def ListGroups(
        self, request: pb.ListGroupsRequest, context: Context
    ) -> pb.ListGroupsResponse:
        """See the contract."""
        return pb.ListGroupsResponse(group_ids=await self._stores.groups.group_ids())

    async def GetTransactionState(
        self, request: pb.GetTransactionStateRequest, context: Context
    ) -> pb.GetTransactionStateResponse:
        """See the contract."""
        state = await self._stores.transactions.get(request.transactional_id)
        return pb.GetTransactionStateResponse(
            state=None if state is None else convert.transaction_state_to_pb(state)
        )

    async def PutTransactionState(
        self, request: pb.PutTransactionStateRequest, context: Context
    ) -> pb.PutTransactionStateResponse:
        """See the contract."""
        version = await self._stores.transactions.put(
            convert.transaction_state_from_pb(request.state)
        )
        return pb.PutTransactionStateResponse(version=version)
