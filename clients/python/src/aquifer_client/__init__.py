"""Typed async client of the Aquifer services; this list is the public surface."""

from aquifer_client._config import RemoteRoleConfig
from aquifer_client._metadata import GrpcRemoteLogMetadataManager
from aquifer_client._storage import GrpcRemoteStorageManager

__all__ = [
    "GrpcRemoteLogMetadataManager",
    "GrpcRemoteStorageManager",
    "RemoteRoleConfig",
]
