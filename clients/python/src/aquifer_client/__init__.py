"""Typed async client of the Aquifer services; this list is the public surface.

The two roles, for whoever moves segments: `GrpcRemoteStorageManager`, `GrpcRemoteLogMetadataManager`. The two services around
them, for programs that look and administer: `RemoteLogManagerClient`, `ClusterMetadataClient`. Errors are those of
`aquifer_core.errors`, identifiers and segments those of `aquifer_core`.
"""

from aquifer_client._cluster import ClusterMetadataClient
from aquifer_client._cluster_values import (
    Broker,
    ClusterSnapshot,
    ConfigResource,
    Endpoint,
    NewTopic,
    Partition,
    Topic,
    TopicResult,
)
from aquifer_client._config import RemoteRoleConfig
from aquifer_client._manager import RemoteLogManagerClient
from aquifer_client._manager_values import (
    FoundOffset,
    PartitionState,
    RemoteFetchPlan,
    TaskAction,
    TaskState,
    TaskType,
)
from aquifer_client._metadata import GrpcRemoteLogMetadataManager
from aquifer_client._storage import GrpcRemoteStorageManager

__all__ = [
    "Broker",
    "ClusterMetadataClient",
    "ClusterSnapshot",
    "ConfigResource",
    "Endpoint",
    "FoundOffset",
    "GrpcRemoteLogMetadataManager",
    "GrpcRemoteStorageManager",
    "NewTopic",
    "Partition",
    "PartitionState",
    "RemoteFetchPlan",
    "RemoteLogManagerClient",
    "RemoteRoleConfig",
    "TaskAction",
    "TaskState",
    "TaskType",
    "Topic",
    "TopicResult",
]
