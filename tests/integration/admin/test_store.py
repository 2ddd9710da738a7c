"""`aquifer store check` against running services."""

import pytest
from aquifer_rpc.server import GrpcServer
from aquifer_rpc.settings import GrpcServerSettings
from aquifer_storage.app import running_server
from aquifer_storage.settings import S3Settings, StorageSettings
from fixtures.admin_command import AdminCommand
from fixtures.faulty_s3 import Fault, FaultyS3
from fixtures.object_store import S3Endpoint
from pydantic import SecretStr


@pytest.fixture
def settings(s3_server: S3Endpoint, bucket: str, faulty_s3: FaultyS3) -> StorageSettings:
    return StorageSettings(
        grpc=GrpcServerSettings(drain_grace_s=0.2),
        s3=S3Settings(
            endpoint=faulty_s3.address,
            bucket=bucket,
            access_key=s3_server.access_key,
            secret_key=SecretStr(s3_server.secret_key),
            retry_timeout_s=0.2,
        ),
    )


def admin(server: GrpcServer) -> AdminCommand:
    return AdminCommand(storage=f"127.0.0.1:{server.port}")


async def test_a_store_that_does_everything_passes(settings: StorageSettings) -> None:
    async with running_server(settings) as server:
        document = await admin(server).json("store", "check")
        assert document["ok"] is True
        assert document["failed"] == document["degraded"] == []
        assert {each["outcome"] for each in document["checks"]} == {"ok"}
        assert len(document["checks"]) > 10
        shown = await admin(server).run("store", "check")
    assert shown.code == 0
    assert "conditional-put" in shown.out
    assert "the store does everything" in shown.out


async def test_a_store_that_lacks_something_is_told_with_an_exit_code(
    settings: StorageSettings, faulty_s3: FaultyS3
) -> None:
    """T56: what is wrong has its own message."""
    async with running_server(settings) as server:
        faulty_s3.fail("list_uploads", fault=Fault(status=501, code="NotImplemented"))
        document = await admin(server).json("store", "check")
        assert document["degraded"] == ["upload-listing"]
        faulty_s3.fail("create_upload", fault=Fault(status=501, code="NotImplemented"))
        outcome = await admin(server).run("store", "check")
        assert outcome.code == 1
        assert "the store cannot be used: multipart" in outcome.out
