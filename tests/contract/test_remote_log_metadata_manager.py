"""The contract of the RemoteLogMetadataManager, in process and through gRPC."""

from collections.abc import AsyncIterator

import pytest
from aquifer.metadata.v1.remote_log_metadata_service_pb2_grpc import (
    add_RemoteLogMetadataServiceServicer_to_server,
)
from aquifer_client import GrpcRemoteLogMetadataManager
from aquifer_core.clock import SystemClock
from aquifer_core.fakes.remote_log_metadata import InMemoryRemoteLogMetadataManager
from aquifer_core.ports import RemoteLogMetadataManager
from aquifer_metadata.adapters.managers import SqlRemoteLogMetadataManager
from aquifer_metadata.adapters.postgres.change_signal import ChangeSignal
from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.remote_log_metadata_manager import (
    PostgresRemoteLogMetadataManager,
)
from aquifer_metadata.servicer.remote_log_metadata_servicer import RemoteLogMetadataServicer
from aquifer_rpc.server import GrpcServer
from aquifer_rpc.settings import GrpcServerSettings
from contract.remote_log_metadata_manager import RemoteLogMetadataManagerContract


class TestInMemory(RemoteLogMetadataManagerContract):
    @pytest.fixture
    async def rlmm(self) -> RemoteLogMetadataManager:
        manager = InMemoryRemoteLogMetadataManager()
        await manager.configure({})
        return manager


class TestSql(RemoteLogMetadataManagerContract):
    @pytest.fixture
    async def rlmm(self, metadata_dsn: str) -> AsyncIterator[RemoteLogMetadataManager]:
        manager = SqlRemoteLogMetadataManager()
        await manager.configure({"dsn": metadata_dsn, "pool.size": "6", "broker.id": "1"})
        yield manager
        await manager.close()


class TestSqlInSmallSteps(RemoteLogMetadataManagerContract):
    """Pages and batches of a few rows, so that every border is crossed."""

    @pytest.fixture
    async def rlmm(self, metadata_database: Database) -> AsyncIterator[RemoteLogMetadataManager]:
        async with ChangeSignal(metadata_database) as signal:
            yield PostgresRemoteLogMetadataManager(
                metadata_database,
                signal,
                clock=SystemClock(),
                trace_id=lambda: "",
                page_size=3,
                watch_poll_s=0.2,
                forget_batch=1,
            )


class TestGrpcOverSql(RemoteLogMetadataManagerContract):
    @pytest.fixture
    async def rlmm(self, metadata_server: GrpcServer) -> AsyncIterator[RemoteLogMetadataManager]:
        manager = GrpcRemoteLogMetadataManager()
        await manager.configure({"endpoints": f"127.0.0.1:{metadata_server.port}"})
        yield manager
        await manager.close()


class TestGrpcOverMemory(RemoteLogMetadataManagerContract):
    """The servicer alone, over the fake."""

    @pytest.fixture
    async def rlmm(self) -> AsyncIterator[RemoteLogMetadataManager]:
        server = GrpcServer(
            GrpcServerSettings(drain_grace_s=0.1),
            name="metadata",
            endless_methods=["/aquifer.metadata.v1.RemoteLogMetadataService/WatchPartition"],
        )
        server.add(
            add_RemoteLogMetadataServiceServicer_to_server,
            RemoteLogMetadataServicer(InMemoryRemoteLogMetadataManager()),
        )
        async with server:
            manager = GrpcRemoteLogMetadataManager()
            await manager.configure({"endpoints": f"127.0.0.1:{server.port}"})
            yield manager
            await manager.close()
