"""Questions to a server that only a working one can answer; each asks once, under a short deadline."""

import asyncio
import io
import struct
from dataclasses import dataclass
from uuid import uuid4

import grpc
import psycopg
import urllib3
from grpc_health.v1 import health_pb2
from minio import Minio
from minio.error import MinioException

_CONNECT_S = 1.0
_PROBE_S = 2.0
# ApiVersions v0 with correlation id 1 and no client id, length first.
_API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_KAFKA_RESPONSE_HEAD_BYTES = 10
_PROBE_BYTES = b"aquifer readiness probe"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Target:
    """An S3 endpoint (`host:port`) with the credentials to use there."""

    endpoint: str
    access_key: str
    secret_key: str
    secure: bool = False
    region: str = "us-east-1"

    def client(self, *, timeout_s: float = _PROBE_S) -> Minio:
        """Make a client that never retries and never waits longer than `timeout_s` for an answer."""
        return Minio(
            self.endpoint,
            access_key=self.access_key,
            secret_key=self.secret_key,
            secure=self.secure,
            region=self.region,
            http_client=urllib3.PoolManager(
                timeout=urllib3.Timeout(connect=_CONNECT_S, read=timeout_s), retries=False
            ),
        )


async def tcp_open(host: str, port: int) -> bool:
    """Tell whether something accepts connections at `host:port`."""
    try:
        async with asyncio.timeout(_CONNECT_S):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def kafka_serving(host: str, port: int) -> bool:
    """Tell whether a Kafka broker at `host:port` answers ApiVersions, which any client asks first."""
    try:
        async with asyncio.timeout(_PROBE_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(_API_VERSIONS_REQUEST)
                await reader.readexactly(_KAFKA_RESPONSE_HEAD_BYTES)
            finally:
                writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return False
    return True


async def grpc_serving(address: str, service: str = "") -> bool:
    """Tell whether the gRPC server at `address` (`host:port`) reports SERVING for `service` ("" is the whole server)."""
    async with grpc.aio.insecure_channel(address) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        try:
            answer = await check(health_pb2.HealthCheckRequest(service=service), timeout=_PROBE_S)
        except grpc.aio.AioRpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def postgres_ready(dsn: str) -> bool:
    """Tell whether the database of `dsn` answers `SELECT 1`."""
    try:
        async with asyncio.timeout(_PROBE_S):
            connection = await psycopg.AsyncConnection.connect(dsn, connect_timeout=2)
            async with connection:
                await connection.execute("SELECT 1")
    except (psycopg.Error, TimeoutError):
        return False
    return True


async def s3_writable(target: S3Target, bucket: str) -> bool:
    """Tell whether `target` stores, returns and deletes an object in `bucket`, which is created when absent.

    An open port says nothing here: a store restarted on old data accepts connections seconds before it takes writes.
    """
    try:
        async with asyncio.timeout(3 * _PROBE_S):
            return await asyncio.to_thread(_write_read_delete, target, bucket)
    except (MinioException, urllib3.exceptions.HTTPError, OSError, TimeoutError):
        return False


def _write_read_delete(target: S3Target, bucket: str) -> bool:
    client = target.client()
    key = f".aquifer-readiness/{uuid4()}"
    if not client.bucket_exists(bucket):
        client.make_bucket(bucket)
    client.put_object(bucket, key, io.BytesIO(_PROBE_BYTES), len(_PROBE_BYTES))
    response = client.get_object(bucket, key)
    try:
        intact = response.read() == _PROBE_BYTES
    finally:
        response.close()
        response.release_conn()
    client.remove_object(bucket, key)
    return intact
