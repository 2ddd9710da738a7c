"""Certificates are replaced under running servers and clients, and under calls."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from aquifer.storage.v1 import remote_storage_service_pb2 as pb
from aquifer.storage.v1 import remote_storage_service_pb2_grpc as pb_grpc
from aquifer_core.errors import RemoteStorageUnavailableError
from aquifer_rpc.calls import call_stream, call_unary, call_upload
from aquifer_rpc.channel import Channel, connect
from aquifer_rpc.server import GrpcServer
from aquifer_rpc.settings import (
    GrpcClientSettings,
    GrpcServerSettings,
    TlsClientSettings,
    TlsServerSettings,
)
from fixtures.otlp import OtlpCollector
from fixtures.polling import eventually
from fixtures.scripted_storage import ScriptedStorage, serving
from fixtures.tls_authority import Authority, TlsFolder

LOOK_S = 0.05
DEADLINE_S = 60.0
REQUEST = pb.DescribeSegmentRequest()
FORMER, NEXT = Authority("former"), Authority("next")


class Rotation:
    """The files of a server and of a client that ask for each other's certificates."""

    def __init__(self, root: Path) -> None:
        self.server = TlsFolder(root / "server").write(FORMER, pair=FORMER.issue("server"))
        self.client = TlsFolder(root / "client").write(FORMER, pair=FORMER.issue("client"))

    def server_settings(self) -> GrpcServerSettings:
        return GrpcServerSettings(
            drain_grace_s=1.0,
            tls=TlsServerSettings(
                certificate_file=self.server.certificate_file,
                key_file=self.server.key_file,
                client_ca_file=self.server.ca_file,
                reload_interval_s=LOOK_S,
            ),
        )

    def client_settings(self) -> GrpcClientSettings:
        return GrpcClientSettings(tls=_client(self.client, LOOK_S), max_attempts=1)


def _client(folder: TlsFolder, look_s: float = 3600.0) -> TlsClientSettings:
    return TlsClientSettings(
        ca_file=folder.ca_file,
        certificate_file=folder.certificate_file,
        key_file=folder.key_file,
        reload_interval_s=look_s,
    )


@pytest.fixture
def rotation(tmp_path: Path) -> Rotation:
    return Rotation(tmp_path)


async def _answer(request: Any, context: Any) -> Any:
    return pb.DescribeSegmentResponse()


@asynccontextmanager
async def talking(
    rotation: Rotation, servicer: ScriptedStorage
) -> AsyncIterator[tuple[Any, Channel, GrpcServer]]:
    async with (
        serving(servicer, settings=rotation.server_settings()) as server,
        connect(f"127.0.0.1:{server.port}", settings=rotation.client_settings()) as channel,
    ):
        yield pb_grpc.RemoteStorageServiceStub(channel), channel, server


async def describe(port: int, tls: TlsClientSettings) -> bool:
    """A call on a connection of its own; whether it was let in."""
    settings = GrpcClientSettings(tls=tls, max_attempts=1, private_connection=True)
    async with connect(f"127.0.0.1:{port}", settings=settings) as channel:
        stub = pb_grpc.RemoteStorageServiceStub(channel)
        try:
            await call_unary(stub.DescribeSegment, REQUEST, deadline_s=DEADLINE_S)
        except RemoteStorageUnavailableError:
            return False
        return True


async def test_authority_and_certificates_rotate_under_a_server_and_its_client(
    rotation: Rotation, tmp_path: Path
) -> None:
    """Both authorities are trusted at first, then the new certificates come, then the former authority goes."""
    both = (FORMER, NEXT)
    former = _client(TlsFolder(tmp_path / "former").write(*both, pair=FORMER.issue()))
    early = _client(TlsFolder(tmp_path / "early").write(*both, pair=NEXT.issue()))
    fresh = _client(TlsFolder(tmp_path / "fresh").write(NEXT, pair=NEXT.issue()))
    servicer = ScriptedStorage(describe=_answer)
    async with talking(rotation, servicer) as (stub, _, server):

        async def replace(*authorities: Authority, issuer: Authority) -> None:
            for folder in (rotation.server, rotation.client):
                folder.write(*authorities, pair=issuer.issue())
                await call_unary(stub.DescribeSegment, REQUEST, deadline_s=DEADLINE_S)

        assert await describe(server.port, former)
        assert not await describe(server.port, early)
        await replace(*both, issuer=FORMER)
        await eventually(lambda: describe(server.port, early))
        assert not await describe(server.port, fresh)
        await replace(*both, issuer=NEXT)
        await eventually(lambda: describe(server.port, fresh))
        assert await describe(server.port, former)
        await replace(NEXT, issuer=NEXT)

        async def former_is_refused() -> bool:
            return not await describe(server.port, former)

        await eventually(former_is_refused)
        assert await describe(server.port, fresh)
        await call_unary(stub.DescribeSegment, REQUEST, deadline_s=DEADLINE_S)


async def test_half_written_files_change_nothing_until_they_are_whole(
    rotation: Rotation, tmp_path: Path
) -> None:
    known = _client(TlsFolder(tmp_path / "known").write(FORMER, pair=FORMER.issue()))
    fresh = _client(TlsFolder(tmp_path / "fresh").write(NEXT, pair=NEXT.issue()))
    pair = NEXT.issue()
    servicer = ScriptedStorage(describe=_answer)
    async with talking(rotation, servicer) as (stub, _, server):

        async def call() -> bool:
            await call_unary(stub.DescribeSegment, REQUEST, deadline_s=DEADLINE_S)
            return True

        with structlog.testing.capture_logs() as logs:
            for folder in (rotation.server, rotation.client):
                folder.ca_file.write_bytes(NEXT.certificate[:100])
                folder.certificate_file.write_bytes(pair.certificate[:100])
                folder.key_file.write_bytes(pair.key[:100])

            async def refused_by_both() -> bool:
                await call()
                return [line["event"] for line in logs].count("tls_files_refused") == 2

            await eventually(refused_by_both)
        assert await describe(server.port, known)
        assert await call()
        for folder in (rotation.server, rotation.client):
            folder.write(NEXT, pair=NEXT.issue())
        await eventually(lambda: describe(server.port, fresh))
        assert not await describe(server.port, known)
        # A client that noticed before the server did was refused meanwhile.
        await eventually(call)


async def test_calls_under_way_end_on_the_connection_on_which_they_began(
    rotation: Rotation,
) -> None:
    peers: set[str] = set()
    go_on = asyncio.Event()

    async def answer(request: Any, context: Any) -> Any:
        peers.add(context.peer())
        return pb.DescribeSegmentResponse()

    async def pieces(request: Any, context: Any) -> AsyncIterator[Any]:
        peers.add(context.peer())
        yield pb.FetchLogSegmentResponse(data=b"first")
        await go_on.wait()
        yield pb.FetchLogSegmentResponse(data=b"second")

    async def copy(requests: Any, context: Any) -> Any:
        peers.add(context.peer())
        count = 0
        async for _ in requests:
            count += 1
        return pb.CopyLogSegmentDataResponse(custom_metadata=bytes([count]))

    async def uploaded() -> AsyncIterator[Any]:
        yield pb.CopyLogSegmentDataRequest()
        await go_on.wait()
        yield pb.CopyLogSegmentDataRequest()

    servicer = ScriptedStorage(describe=answer, fetch=pieces, copy=copy)
    async with talking(rotation, servicer) as (stub, _, _server):
        request = pb.FetchLogSegmentRequest()
        upload = asyncio.create_task(
            call_upload(stub.CopyLogSegmentData, uploaded(), deadline_s=DEADLINE_S)
        )
        stream = call_stream(stub.FetchLogSegment, request, deadline_s=DEADLINE_S)
        async with aclosing(stream) as received:
            assert (await anext(received)).data == b"first"
            await eventually(lambda: servicer.calls == 2)
            assert len(peers) == 1
            rotation.client.write(FORMER, pair=FORMER.issue("renewed"))

            async def on_another_connection() -> bool:
                await call_unary(stub.DescribeSegment, REQUEST, deadline_s=DEADLINE_S)
                return len(peers) == 2

            await eventually(on_another_connection)
            go_on.set()
            assert [piece.data async for piece in received] == [b"second"]
        assert (await upload).custom_metadata == bytes([2])
    assert len(peers) == 2


async def test_closing_a_channel_ends_the_calls_on_its_former_connections(
    rotation: Rotation,
) -> None:
    peers: set[str] = set()

    async def answer(request: Any, context: Any) -> Any:
        peers.add(context.peer())
        return pb.DescribeSegmentResponse()

    async def endless(request: Any, context: Any) -> AsyncIterator[Any]:
        peers.add(context.peer())
        yield pb.FetchLogSegmentResponse(data=b"first")
        await asyncio.Event().wait()

    servicer = ScriptedStorage(describe=answer, fetch=endless)
    async with talking(rotation, servicer) as (stub, channel, _):
        stream = call_stream(stub.FetchLogSegment, pb.FetchLogSegmentRequest(), deadline_s=600)
        async with aclosing(stream) as received:
            await anext(received)
            rotation.client.write(FORMER, pair=FORMER.issue("renewed"))

            async def on_another_connection() -> bool:
                await call_unary(stub.DescribeSegment, REQUEST, deadline_s=DEADLINE_S)
                return len(peers) == 2

            await eventually(on_another_connection)
            await channel.close()
            with pytest.raises(RemoteStorageUnavailableError):
                await anext(received)


async def test_old_connections_are_replaced_when_the_server_says_how_old_they_may_be(
    rotation: Rotation,
) -> None:
    peers: set[str] = set()

    async def answer(request: Any, context: Any) -> Any:
        peers.add(context.peer())
        return pb.DescribeSegmentResponse()

    settings = rotation.server_settings().model_copy(update={"max_connection_s": 0.1})
    servicer = ScriptedStorage(describe=answer)
    client = GrpcClientSettings(tls=_client(rotation.client))
    async with (
        serving(servicer, settings=settings) as server,
        connect(f"127.0.0.1:{server.port}", settings=client) as channel,
    ):
        stub = pb_grpc.RemoteStorageServiceStub(channel)

        async def reconnected() -> bool:
            await call_unary(stub.DescribeSegment, REQUEST, deadline_s=DEADLINE_S)
            return len(peers) > 2

        await eventually(reconnected)


async def test_refused_files_are_counted_for_the_operator(
    rotation: Rotation, otlp_collector: OtlpCollector, tmp_path: Path
) -> None:
    script = tmp_path / "served.py"
    script.write_text(_SERVICE)
    variables = {
        "TELEMETRY__OTLP_ENDPOINT": otlp_collector.endpoint,
        "TELEMETRY__METRICS_INTERVAL_S": "0.2",
        "GRPC__TLS__CERTIFICATE_FILE": str(rotation.server.certificate_file),
        "GRPC__TLS__KEY_FILE": str(rotation.server.key_file),
        "GRPC__TLS__RELOAD_INTERVAL_S": str(LOOK_S),
    }
    env = os.environ | {f"AQUIFER_SERVED_{name}": value for name, value in variables.items()}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(script)), env=env, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            await process.stdout.readline()
        rotation.server.key_file.write_bytes(FORMER.issue().key)
        await eventually(lambda: _counted(otlp_collector, "refused"))
        rotation.server.write(NEXT, pair=NEXT.issue())
        await eventually(lambda: _counted(otlp_collector, "ok"))
    finally:
        process.kill()
        await process.wait()


def _counted(collector: OtlpCollector, outcome: str) -> bool:
    return any(
        point.name == "aquifer.tls.reads" and point.attributes["aquifer.outcome"] == outcome
        for point in collector.points
    )


_SERVICE = """
from aquifer_rpc.server import GrpcServer
from aquifer_rpc.service import run_service
from aquifer_rpc.settings import ServiceSettings


async def main(settings):
    async with GrpcServer(settings.grpc, name="served") as server:
        print(server.port, flush=True)
        await server.run_until_signal()


run_service("aquifer-served", ServiceSettings, "AQUIFER_SERVED_", main, argv=[])
"""
