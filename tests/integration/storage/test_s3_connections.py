"""Readers and writers share few connections to the store without waiting for each other in a circle (T50)."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator

import pytest
from aquifer_storage.adapters.s3 import S3ObjectStore
from aquifer_storage.adapters.s3_client import S3Options
from aquifer_storage.domain.limited_store import LimitedObjectStore
from aquifer_storage.domain.work_limits import Work, WorkLimit, WorkLimits
from fixtures.faulty_s3 import FaultyS3
from fixtures.object_store import S3Endpoint
from fixtures.polling import eventually

KIB = 1024
PIECES = [64 * KIB] * 8
DEADLINE_S = 60


def opened(s3_server: S3Endpoint, bucket: str, endpoint: str = "") -> S3ObjectStore:
    """A store with two connections."""
    return S3ObjectStore(
        S3Options(
            endpoint=endpoint or s3_server.endpoint,
            bucket=bucket,
            access_key=s3_server.access_key,
            secret_key=s3_server.secret_key,
            secure=s3_server.secure,
            connections=2,
        )
    )


@pytest.fixture
async def objects(s3_server: S3Endpoint, bucket: str) -> AsyncIterator[S3ObjectStore]:
    """A store with two connections."""
    store = opened(s3_server, bucket)
    yield store
    await store.close()


async def read(objects: S3ObjectStore | LimitedObjectStore, key: str) -> bytes:
    """Read an object in pieces, with time for others between them."""
    pieces = []
    async for piece in objects.read(key, 0, PIECES):
        pieces.append(piece)
        await asyncio.sleep(0.01)
    return b"".join(pieces)


async def test_more_readers_than_connections_all_come_to_their_end(objects: S3ObjectStore) -> None:
    data = os.urandom(sum(PIECES))
    await objects.put("k", data)
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        reads = [group.create_task(read(objects, "k")) for _ in range(12)]
        for number in range(12):
            group.create_task(objects.put(f"other-{number}", b"written meanwhile"))
    assert all(done.result() == data for done in reads)


async def test_a_limit_of_requests_does_not_hold_readers_up_that_have_a_connection(
    objects: S3ObjectStore,
) -> None:
    data = os.urandom(sum(PIECES))
    await objects.put("k", data)
    limits = WorkLimits()
    limits.apply({Work.FETCH: WorkLimit(concurrency=3)})
    fetching = LimitedObjectStore(objects, limits, Work.FETCH)
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        reads = [group.create_task(read(fetching, "k")) for _ in range(12)]
    assert all(done.result() == data for done in reads)


async def test_readers_held_back_by_their_rate_leave_a_connection_to_writers(
    objects: S3ObjectStore,
) -> None:
    await objects.put("k", bytes(sum(PIECES)))
    limits = WorkLimits()
    limits.apply({Work.FETCH: WorkLimit(bytes_per_s=1)})
    fetching = LimitedObjectStore(objects, limits, Work.FETCH)
    reads = [asyncio.create_task(read(fetching, "k")) for _ in range(4)]
    try:
        async with asyncio.timeout(DEADLINE_S):
            await eventually(lambda: objects.totals.requests["get_object"])
            await objects.put("other", b"written meanwhile")
            assert await objects.size_bytes("other") == 17
    finally:
        for each in reads:
            each.cancel()
        await asyncio.gather(*reads, return_exceptions=True)


async def test_reads_given_up_while_they_begin_cost_no_connection(
    s3_server: S3Endpoint, bucket: str, faulty_s3: FaultyS3
) -> None:
    asked, answers = threading.Semaphore(0), threading.Event()

    def wait(operation: str) -> None:
        if operation == "get_object":
            asked.release()
            answers.wait(DEADLINE_S)

    faulty_s3.on_request = wait
    objects = opened(s3_server, bucket, faulty_s3.address)
    await objects.put("k", bytes(sum(PIECES)))
    for _ in range(3):
        answers.clear()
        given_up = asyncio.create_task(read(objects, "k"))
        await eventually(lambda: asked.acquire(blocking=False))
        given_up.cancel()
        await asyncio.sleep(0)
        answers.set()
        await asyncio.wait([given_up])
    async with asyncio.timeout(DEADLINE_S):
        assert await read(objects, "k") == bytes(sum(PIECES))
    await objects.close()
