"""Look-ups of other partitions while the segments of one are forgotten, batch by batch."""

import asyncio
import time
from contextlib import closing
from urllib.parse import urlsplit

import psycopg
from aquifer_client import GrpcRemoteLogMetadataManager
from aquifer_core.errors import AquiferError
from aquifer_core.segment import RemotePartitionDeleteMetadata
from aquifer_core.state import RemotePartitionDeleteState
from bench.metadata_facts import Facts
from fixtures.polling import eventually
from psycopg import sql

_STEPS = (
    RemotePartitionDeleteState.DELETE_PARTITION_MARKED,
    RemotePartitionDeleteState.DELETE_PARTITION_STARTED,
    RemotePartitionDeleteState.DELETE_PARTITION_FINISHED,
)
_QUIET_S = 3.0
_DEADLINE_S = 300.0


def copied(server_dsn: str, facts: Facts) -> Facts:
    """The same facts in a database that may be changed."""
    kept = urlsplit(facts.dsn).path.removeprefix("/")
    name = "bench_deletion"
    with closing(psycopg.connect(server_dsn, autocommit=True)) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
        connection.execute(statement.format(sql.Identifier(name), sql.Identifier(kept)))
    dsn = urlsplit(server_dsn)._replace(path=f"/{name}").geturl()
    return Facts(dsn, facts.topic_id, facts.segments, facts.partitions)


async def lookups_beside_deletion(
    client: GrpcRemoteLogMetadataManager, facts: Facts
) -> tuple[list[float], list[float], float]:
    """Seconds of look-ups in the second partition before and while the first is forgotten, and how long that took."""
    before = await _lookups(client, facts, asyncio.create_task(asyncio.sleep(_QUIET_S)))
    started = time.perf_counter()
    beside = await _lookups(client, facts, asyncio.create_task(_forgotten(client, facts)))
    return before, beside, time.perf_counter() - started


async def _lookups(
    client: GrpcRemoteLogMetadataManager, facts: Facts, until: asyncio.Task[None]
) -> list[float]:
    """Look-ups one after the other until a task ends, at least a hundred."""
    seconds: list[float] = []
    while not until.done() or len(seconds) < 100:
        for tip, offset in facts.questions(100, len(seconds)):
            if tip.partition == 0:
                continue
            started = time.perf_counter()
            if await client.remote_log_segment_metadata(tip, 0, offset) is None:
                raise RuntimeError(f"nothing found for {tip} at {offset}")
            seconds.append(time.perf_counter() - started)
    await until
    return seconds


async def _forgotten(client: GrpcRemoteLogMetadataManager, facts: Facts) -> None:
    """Deletes the first partition and waits until no row of it is left."""
    for state in _STEPS:
        step = RemotePartitionDeleteMetadata(
            topic_id_partition=facts.partition(0),
            state=state,
            event_timestamp_ms=int(time.time() * 1000),
            broker_id=1,
        )
        try:
            await client.put_remote_partition_delete_metadata(step)
        except AquiferError:
            if state is not _STEPS[-1]:
                raise  # the last step goes on by itself after its call's time is up
    await eventually(lambda: asyncio.to_thread(_is_gone, facts), _DEADLINE_S, interval_s=0.2)


def _is_gone(facts: Facts) -> bool:
    with closing(psycopg.connect(facts.dsn, autocommit=True)) as connection:
        found = connection.execute("SELECT 1 FROM remote_log_segment WHERE partition = 0 LIMIT 1")
        return found.fetchone() is None
