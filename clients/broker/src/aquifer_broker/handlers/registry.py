"""All handlers by API."""

from aquifer_broker.handlers.configs import (
    AlterConfigsHandler,
    DescribeConfigsHandler,
    IncrementalAlterConfigsHandler,
)
from aquifer_broker.handlers.fetch import FetchHandler
from aquifer_broker.handlers.group_admin import (
    DeleteGroupsHandler,
    DescribeGroupsHandler,
    ListGroupsHandler,
)
from aquifer_broker.handlers.groups import (
    FindCoordinatorHandler,
    HeartbeatHandler,
    JoinGroupHandler,
    LeaveGroupHandler,
    SyncGroupHandler,
)
from aquifer_broker.handlers.list_offsets import ListOffsetsHandler
from aquifer_broker.handlers.metadata import (
    ApiVersionsHandler,
    DescribeClusterHandler,
    MetadataHandler,
)
from aquifer_broker.handlers.offsets import (
    OffsetCommitHandler,
    OffsetDeleteHandler,
    OffsetFetchHandler,
)
from aquifer_broker.handlers.produce import ProduceHandler
from aquifer_broker.handlers.producers import InitProducerIdHandler
from aquifer_broker.handlers.records import (
    DeleteRecordsHandler,
    DescribeLogDirsHandler,
    OffsetForLeaderEpochHandler,
)
from aquifer_broker.handlers.services import BrokerServices
from aquifer_broker.handlers.topic_creation import TopicCreation
from aquifer_broker.handlers.topics import (
    CreatePartitionsHandler,
    CreateTopicsHandler,
    DeleteTopicsHandler,
)
from aquifer_broker.protocol.dispatch import Handler
from aquifer_broker.protocol.versions import ApiKey

__all__ = ["build_handlers"]


def build_handlers(services: BrokerServices, creation: TopicCreation) -> dict[ApiKey, Handler]:
    """One handler for every API of the version table."""
    return {
        ApiKey.PRODUCE: ProduceHandler(services),
        ApiKey.FETCH: FetchHandler(services),
        ApiKey.LIST_OFFSETS: ListOffsetsHandler(services),
        ApiKey.METADATA: MetadataHandler(services, creation),
        ApiKey.OFFSET_COMMIT: OffsetCommitHandler(services),
        ApiKey.OFFSET_FETCH: OffsetFetchHandler(services),
        ApiKey.FIND_COORDINATOR: FindCoordinatorHandler(services),
        ApiKey.JOIN_GROUP: JoinGroupHandler(services),
        ApiKey.HEARTBEAT: HeartbeatHandler(services),
        ApiKey.LEAVE_GROUP: LeaveGroupHandler(services),
        ApiKey.SYNC_GROUP: SyncGroupHandler(services),
        ApiKey.DESCRIBE_GROUPS: DescribeGroupsHandler(services),
        ApiKey.LIST_GROUPS: ListGroupsHandler(services),
        ApiKey.API_VERSIONS: ApiVersionsHandler(),
        ApiKey.CREATE_TOPICS: CreateTopicsHandler(services, creation),
        ApiKey.DELETE_TOPICS: DeleteTopicsHandler(services),
        ApiKey.DELETE_RECORDS: DeleteRecordsHandler(services),
        ApiKey.INIT_PRODUCER_ID: InitProducerIdHandler(services),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochHandler(services),
        ApiKey.DESCRIBE_CONFIGS: DescribeConfigsHandler(services),
        ApiKey.ALTER_CONFIGS: AlterConfigsHandler(services),
        ApiKey.DESCRIBE_LOG_DIRS: DescribeLogDirsHandler(services),
        ApiKey.CREATE_PARTITIONS: CreatePartitionsHandler(services),
        ApiKey.DELETE_GROUPS: DeleteGroupsHandler(services),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: IncrementalAlterConfigsHandler(services),
        ApiKey.OFFSET_DELETE: OffsetDeleteHandler(services),
        ApiKey.DESCRIBE_CLUSTER: DescribeClusterHandler(services),
    }
