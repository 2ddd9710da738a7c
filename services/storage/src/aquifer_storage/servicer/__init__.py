"""The gRPC face of the storage service."""

from aquifer_storage.servicer.servicer import RemoteStorageServicer

__all__ = ["RemoteStorageServicer"]
