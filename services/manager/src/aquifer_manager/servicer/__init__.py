"""The gRPC face of the manager."""

from aquifer_manager.servicer.manager_servicer import RemoteLogManagerServicer

__all__ = ["RemoteLogManagerServicer"]
