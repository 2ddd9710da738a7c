"""Readiness questions are answered by what a server does, and always in time."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from aquifer_standalone.ports import LOOPBACK, hold_port, hold_ports
from aquifer_standalone.readiness import (
    S3Target,
    grpc_serving,
    postgres_ready,
    s3_writable,
    tcp_open,
)
from fixtures.object_store import S3Endpoint
from fixtures.polling import eventually
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health

_STATUS = health_pb2.HealthCheckResponse


@asynccontextmanager
async def _health_server() -> AsyncIterator[tuple[str, health.HealthServicer]]:
    server, servicer = grpc.aio.server(), health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port(f"{LOOPBACK}:0")
    await server.start()
    try:
        yield f"{LOOPBACK}:{port}", servicer
    finally:
        await server.stop(grace=0)


@asynccontextmanager
async def _silent_server() -> AsyncIterator[int]:
    """A server that accepts connections and never says a word."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        yield listener.getsockname()[1]


async def test_a_grpc_server_is_ready_when_its_health_service_says_so() -> None:
    async with _health_server() as (address, servicer):
        await servicer.set("", _STATUS.NOT_SERVING)
        assert not await grpc_serving(address)
        await servicer.set("", _STATUS.SERVING)
        assert await eventually(lambda: grpc_serving(address))
        await servicer.set("aquifer.storage", _STATUS.NOT_SERVING)
        assert not await grpc_serving(address, "aquifer.storage")
        assert not await grpc_serving(address, "unknown")


async def test_nothing_is_ready_where_nobody_listens() -> None:
    with hold_port() as port:
        address = f"{LOOPBACK}:{port.number}"
        assert not await tcp_open(LOOPBACK, port.number)
        assert not await grpc_serving(address)
        assert not await postgres_ready(f"postgresql://user:password@{address}/database")
        target = S3Target(endpoint=address, access_key="access", secret_key="secret")
        assert not await s3_writable(target, "bucket")


async def test_a_silent_server_is_open_but_not_ready_and_the_question_ends() -> None:
    async with _silent_server() as port, asyncio.timeout(60):
        address = f"{LOOPBACK}:{port}"
        assert await tcp_open(LOOPBACK, port)
        answers = await asyncio.gather(
            grpc_serving(address),
            postgres_ready(f"postgresql://user:password@{address}/database"),
            s3_writable(S3Target(endpoint=address, access_key="a", secret_key="b"), "bucket"),
        )
        assert list(answers) == [False, False, False]


async def test_a_working_store_and_database_are_ready(
    postgres_dsn: str, s3_server: S3Endpoint
) -> None:
    target = S3Target(
        endpoint=s3_server.endpoint,
        access_key=s3_server.access_key,
        secret_key=s3_server.secret_key,
        secure=s3_server.secure,
    )
    assert await eventually(lambda: postgres_ready(postgres_dsn))
    assert await eventually(lambda: s3_writable(target, "readiness"))


def test_a_held_port_is_nobody_elses_until_it_is_released() -> None:
    ports = hold_ports(20)
    assert len({port.number for port in ports}) == 20
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((LOOPBACK, ports[0].number))
    for port in ports:
        port.release()
        port.release()
    with socket.create_server((LOOPBACK, ports[0].number)) as server:
        assert server.getsockname()[1] == ports[0].number
