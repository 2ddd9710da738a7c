"""The contract of the RemoteStorageManager, in process and through gRPC."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aquifer_client import GrpcRemoteStorageManager
from aquifer_core.fakes.remote_storage import InMemoryRemoteStorageManager
from aquifer_core.ports import RemoteStorageManager
from aquifer_rpc.settings import GrpcServerSettings
from aquifer_storage.adapters.managers import (
    FilesystemRemoteStorageManager,
    S3RemoteStorageManager,
)
from aquifer_storage.app import running_server
from aquifer_storage.settings import (
    Backend,
    Codec,
    CopySettings,
    EncryptionSettings,
    FilesystemSettings,
    S3Settings,
    StorageSettings,
)
from contract.remote_storage_manager import RemoteStorageManagerContract
from fixtures.key_rings import KeyRingFiles, new_key_ring, private_pem, rsa_key
from fixtures.object_store import S3Endpoint
from pydantic import SecretStr


class TestInMemory(RemoteStorageManagerContract):
    @pytest.fixture
    async def rsm(self) -> RemoteStorageManager:
        manager = InMemoryRemoteStorageManager()
        await manager.configure({})
        return manager


class TestFilesystem(RemoteStorageManagerContract):
    @pytest.fixture
    async def rsm(self, tmp_path: Path) -> AsyncIterator[RemoteStorageManager]:
        manager = FilesystemRemoteStorageManager()
        await manager.configure(
            {"filesystem.root": str(tmp_path), "key.prefix": "segments/", "broker.id": "1"}
        )
        yield manager
        await manager.close()


class TestS3(RemoteStorageManagerContract):
    @pytest.fixture
    async def rsm(self, s3_server: S3Endpoint, bucket: str) -> AsyncIterator[RemoteStorageManager]:
        manager = S3RemoteStorageManager()
        await manager.configure(
            {
                "s3.endpoint": s3_server.endpoint,
                "s3.bucket": bucket,
                "s3.access.key": s3_server.access_key,
                "s3.secret.key": s3_server.secret_key,
                "s3.secure": str(s3_server.secure),
            }
        )
        yield manager
        await manager.close()


class TestSealedFilesystem(RemoteStorageManagerContract):
    """Compressed and encrypted, in chunks so small that most segments have several."""

    @pytest.fixture
    async def rsm(self, tmp_path: Path) -> AsyncIterator[RemoteStorageManager]:
        manager = FilesystemRemoteStorageManager()
        await manager.configure(
            {
                "filesystem.root": str(tmp_path / "segments"),
                "chunk.size.bytes": "20000",
                "codec": "zstd",
                "encryption.key.ring.file": str(new_key_ring(tmp_path / "keys").path),
            }
        )
        yield manager
        await manager.close()


class TestGrpcOverFilesystem(RemoteStorageManagerContract):
    @pytest.fixture
    async def rsm(self, tmp_path: Path) -> AsyncIterator[RemoteStorageManager]:
        settings = StorageSettings(
            backend=Backend.FILESYSTEM,
            filesystem=FilesystemSettings(root=tmp_path),
            grpc=GrpcServerSettings(drain_grace_s=0),
        )
        async with running_server(settings) as server:
            manager = GrpcRemoteStorageManager()
            await manager.configure({"endpoints": f"127.0.0.1:{server.port}"})
            yield manager
            await manager.close()


class TestSealedGrpcOverS3(RemoteStorageManagerContract):
    """Compressed and encrypted with an RSA key."""

    @pytest.fixture
    async def rsm(
        self, s3_server: S3Endpoint, bucket: str, tmp_path: Path
    ) -> AsyncIterator[RemoteStorageManager]:
        ring = KeyRingFiles(tmp_path)
        ring.put("a", private_pem(rsa_key("a")))
        ring.activate("a")
        settings = StorageSettings(
            copying=CopySettings(codec=Codec.ZSTD, single_put_max_bytes=0),
            encryption=EncryptionSettings(key_ring_file=ring.path),
            s3=S3Settings(
                endpoint=s3_server.endpoint,
                bucket=bucket,
                access_key=s3_server.access_key,
                secret_key=SecretStr(s3_server.secret_key),
                secure=s3_server.secure,
            ),
            grpc=GrpcServerSettings(drain_grace_s=0),
        )
        async with running_server(settings) as server:
            manager = GrpcRemoteStorageManager()
            await manager.configure({"endpoints": f"127.0.0.1:{server.port}"})
            yield manager
            await manager.close()


class TestGrpcOverS3(RemoteStorageManagerContract):
    @pytest.fixture
    async def rsm(self, s3_server: S3Endpoint, bucket: str) -> AsyncIterator[RemoteStorageManager]:
        settings = StorageSettings(
            s3=S3Settings(
                endpoint=s3_server.endpoint,
                bucket=bucket,
                access_key=s3_server.access_key,
                secret_key=SecretStr(s3_server.secret_key),
                secure=s3_server.secure,
            ),
            grpc=GrpcServerSettings(drain_grace_s=0),
        )
        async with running_server(settings) as server:
            manager = GrpcRemoteStorageManager()
            await manager.configure({"endpoints": f"127.0.0.1:{server.port}"})
            yield manager
            await manager.close()
