"""Watches of a process are polled for together: statements do not grow with partitions, and nothing is missed."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import builders
import pytest
from aquifer_core.clock import SystemClock
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_core.ports import PartitionChange
from aquifer_metadata.adapters.postgres.change_signal import ChangeSignal
from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.remote_log_metadata_manager import (
    PostgresRemoteLogMetadataManager,
)
from contract.remote_log_metadata.steps import tip
from fixtures.polling import eventually
from sqlalchemy import event, text

WATCHES = 2_000
WAIT_S = 90
TOPIC_ID = UUID("6f1c9a1e-8a4e-4a8c-9d0c-0f6c2d3b4a59")

FILL = f"""
INSERT INTO remote_log_partition (topic_id, partition, topic, highest_leader_epoch, version)
SELECT '{TOPIC_ID}', n, 'orders', 0, 7 FROM generate_series(0, {WATCHES - 1}) n
"""
LOST = f"""
WITH moved AS (
  UPDATE remote_log_partition SET version = version + 1, earliest_log_offset = 5
  WHERE topic_id = '{TOPIC_ID}' AND partition = ANY(:partitions) RETURNING topic_id, partition, version)
INSERT INTO remote_log_segment_event (topic_id, partition, version, timestamp_ms, reason, trace_id, earliest_log_offset)
SELECT topic_id, partition, version, 1, '', '', 5 FROM moved
"""
"""A change that nobody is notified of."""


@pytest.fixture
def statements(metadata_database: Database) -> Counter[str]:
    """What was sent, by first words."""
    counted: Counter[str] = Counter()

    def count(connection: object, cursor: object, statement: str, *_: object) -> None:
        counted["poll" if "WITH ORDINALITY" in statement else statement.split(None, 1)[0]] += 1

    event.listen(metadata_database.engine.sync_engine, "before_cursor_execute", count)
    return counted


def manager_of(
    database: Database, signal: ChangeSignal, watch_poll_s: float
) -> PostgresRemoteLogMetadataManager:
    return PostgresRemoteLogMetadataManager(
        database, signal, clock=SystemClock(), trace_id=lambda: "", watch_poll_s=watch_poll_s
    )


@asynccontextmanager
async def watched(
    manager: PostgresRemoteLogMetadataManager, tips: list[TopicIdPartition], from_version: int
) -> AsyncIterator[dict[TopicIdPartition, list[PartitionChange]]]:
    """Watches partitions, and holds what they see."""
    seen: dict[TopicIdPartition, list[PartitionChange]] = {each: [] for each in tips}

    async def watch(each: TopicIdPartition) -> None:
        async for change in manager.watch_partition(each, from_version):
            seen[each].append(change)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(watch(each)) for each in tips]
        try:
            yield seen
        finally:
            for task in tasks:
                task.cancel()


async def lose(database: Database, *partitions: int) -> None:
    await database.write(
        lambda connection: connection.execute(text(LOST), {"partitions": list(partitions)})
    )


async def test_two_thousand_watches_cost_two_statements_in_an_interval(
    metadata_database: Database, statements: Counter[str]
) -> None:
    """And a change that nobody was notified of is seen by those it concerns, and asks for nobody else."""
    await metadata_database.write(lambda connection: connection.execute(text(FILL)))
    topic_id = KafkaUuid(TOPIC_ID.bytes)
    tips = [TopicIdPartition(topic_id, "orders", number) for number in range(WATCHES)]
    async with ChangeSignal(metadata_database) as signal:
        manager = manager_of(metadata_database, signal, 0.2)
        async with watched(manager, tips, 7) as seen:
            # One statement begins each watch.
            await eventually(lambda: statements["SELECT"] >= WATCHES, timeout_s=WAIT_S)

            async def polled(times: int) -> None:
                goal = statements["poll"] + 2 * (times + 1)
                await eventually(lambda: statements["poll"] >= goal, timeout_s=WAIT_S)

            await polled(5)
            assert statements["SELECT"] == WATCHES, "nobody asks for itself"
            moved = {3, 1500, 1999}
            await lose(metadata_database, *moved)
            await eventually(
                lambda: {each.partition for each in tips if seen[each]} == moved, timeout_s=WAIT_S
            )
            await polled(3)
            # Each reads what is new, and then that there is no more.
            assert statements["SELECT"] == WATCHES + 2 * len(moved)
            assert all(
                [change.earliest_log_offset for change in seen[each]]
                == [5] * (each.partition in moved)
                for each in tips
            )


async def test_a_notified_change_is_seen_long_before_the_poll(metadata_database: Database) -> None:
    async with ChangeSignal(metadata_database) as signal:
        manager = manager_of(metadata_database, signal, 3600.0)
        partition = tip()
        async with watched(manager, [partition], 0) as seen:
            segment = builders.remote_segment(partition, 0, 9)
            await manager.add_remote_log_segment_metadata(segment)
            await eventually(lambda: seen[partition], timeout_s=WAIT_S)
            assert [change.segment for change in seen[partition]] == [segment]


async def test_several_watches_of_a_partition_each_see_everything(
    metadata_database: Database,
) -> None:
    """A write that changes nothing takes a version and wakes nobody for long."""
    async with ChangeSignal(metadata_database) as signal:
        manager = manager_of(metadata_database, signal, 0.05)
        partition = tip()
        first = builders.remote_segment(partition, 0, 9)
        async with watched(manager, [partition], 0) as one:
            await manager.add_remote_log_segment_metadata(first)
            await eventually(lambda: one[partition], timeout_s=WAIT_S)
            async with watched(manager, [partition], 0) as two:
                await manager.add_remote_log_segment_metadata(first)
                second = builders.remote_segment(partition, 10, 19)
                await manager.add_remote_log_segment_metadata(second)
                await eventually(lambda: len(two[partition]) == 2, timeout_s=WAIT_S)
            await eventually(lambda: len(one[partition]) == 2, timeout_s=WAIT_S)
        for seen in (one, two):
            assert [change.segment for change in seen[partition]] == [first, second]
