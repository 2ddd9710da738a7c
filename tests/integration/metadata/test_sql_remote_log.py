"""What PostgreSQL adds to the contract of the RemoteLogMetadataManager: flags, query plans, waking, outages."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing

import builders
import psycopg
import pytest
from aquifer_core.clock import SystemClock
from aquifer_core.errors import ErrorReason, RemoteStorageUnavailableError
from aquifer_core.ids import TopicIdPartition
from aquifer_core.segment import RemoteLogSegmentMetadata, RemotePartitionDeleteMetadata
from aquifer_core.state import RemoteLogSegmentState, RemotePartitionDeleteState
from aquifer_metadata.adapters.postgres.change_signal import ChangeSignal
from aquifer_metadata.adapters.postgres.database import Database, DatabaseOptions
from aquifer_metadata.adapters.postgres.remote_log_deletions import FIRST_PAGE, UNFINISHED
from aquifer_metadata.adapters.postgres.remote_log_lookups import (
    LOOKUP,
    Question,
    lookup_values,
)
from aquifer_metadata.adapters.postgres.remote_log_metadata_manager import (
    PostgresRemoteLogMetadataManager,
)
from aquifer_metadata.adapters.postgres.remote_log_rows import partition_key
from contract.remote_log_metadata.steps import brought_to, found, listed, move
from sqlalchemy import text

DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED


@pytest.fixture
async def signal(metadata_database: Database) -> AsyncIterator[ChangeSignal]:
    async with ChangeSignal(metadata_database) as signal:
        yield signal


@pytest.fixture
def rlmm(metadata_database: Database, signal: ChangeSignal) -> PostgresRemoteLogMetadataManager:
    return manager(metadata_database, signal)


def manager(database: Database, signal: ChangeSignal) -> PostgresRemoteLogMetadataManager:
    return PostgresRemoteLogMetadataManager(
        database,
        signal,
        clock=SystemClock(),
        trace_id=lambda: "0af7651916cd43dd8448eb211c80319c",
        watch_poll_s=600,
        forget_batch=2,
    )


async def flags(database: Database) -> dict[tuple[int, int], bool]:
    """(first, last offset) of every segment -> whether look-ups see it."""
    rows = await database.read(
        lambda connection: connection.execute(
            text("SELECT start_offset, end_offset, referenced FROM remote_log_segment_epoch")
        )
    )
    return {(row.start_offset, row.end_offset): row.referenced for row in rows}


@pytest.mark.parametrize(
    ("finished", "referenced"),
    [
        ([(10, 100), (101, 200)], {(10, 100), (101, 200)}),
        ([(10, 100), (5, 150)], {(5, 150)}),
        ([(10, 100), (5, 150), (148, 155)], {(5, 150), (148, 155)}),
        ([(10, 100), (5, 150), (148, 155), (4, 200)], {(4, 200)}),
        ([(10, 100), (10, 150)], {(10, 150)}),
    ],
)
async def test_copies_displace_what_they_cover(
    rlmm: PostgresRemoteLogMetadataManager,
    metadata_database: Database,
    finished: list[tuple[int, int]],
    referenced: set[tuple[int, int]],
) -> None:
    """K-2.2: referenced and unreferenced segments."""
    partition = builders.topic_id_partition()
    for bounds in finished:
        await brought_to(rlmm, builders.remote_segment(partition, *bounds))
    assert await flags(metadata_database) == {bounds: bounds in referenced for bounds in finished}


@pytest.mark.parametrize("together", [1, 20])
async def test_a_lookup_reads_one_row_of_one_index_range(
    rlmm: PostgresRemoteLogMetadataManager,
    metadata_database: Database,
    metadata_dsn: str,
    together: int,
) -> None:
    """T38: flat cost, whatever the number of segments, and of look-ups that share a statement."""
    partition = builders.topic_id_partition()
    await many_segments(metadata_database, partition, 20_000)
    assert await found(rlmm, partition, 0, 10_000 * 10 + 5) is not None
    questions = [Question(partition, 0, 100_005 + 10 * number) for number in range(together)]
    with psycopg.connect(metadata_dsn) as connection:
        rows = connection.execute(
            f"EXPLAIN (ANALYZE, BUFFERS OFF, COSTS OFF, TIMING OFF, SUMMARY OFF) {LOOKUP.text}",
            lookup_values(questions),
        ).fetchall()
    plan = "\n".join(row[0] for row in rows)
    assert "remote_log_segment_epoch_lookup" in plan
    assert "Seq Scan on remote_log_segment" not in plan
    reads = [line for line in plan.splitlines() if "Scan" in line and "Function" not in line]
    assert len(reads) <= 3, plan
    assert all(f"rows=1.00 loops={together})" in line for line in reads), plan


async def many_segments(database: Database, partition: TopicIdPartition, count: int) -> None:
    """Finished segments of ten offsets each, written by one statement."""
    values = partition_key(partition).values | {"count": count}

    async def fill(connection):  # type: ignore[no-untyped-def]
        await connection.execute(
            text("""
            INSERT INTO remote_log_segment SELECT gen_random_uuid(), :topic_id, :partition, n * 10, n * 10 + 9, 1, n, n,
              1024, 1, ARRAY[0], ARRAY[n * 10], NULL, n % 100 <> 99, 0, n, 0, 0
            FROM generate_series(0, CAST(:count AS bigint) - 1) n"""),
            values,
        )
        await connection.execute(
            text("""
            INSERT INTO remote_log_segment_epoch SELECT topic_id, partition, 0, segment_id, start_offset, end_offset,
              txn_index_empty, true, version FROM remote_log_segment"""),
        )
        await connection.execute(
            text("""
            INSERT INTO remote_log_partition
            VALUES (:topic_id, :partition, 'orders', 0, NULL, NULL, CAST(:count AS bigint))"""),
            values,
        )

    await database.write(fill)
    await database.read(lambda connection: connection.execute(text("VACUUM ANALYZE")))


async def test_deletions_are_found_without_looking_at_all_partitions(
    rlmm: PostgresRemoteLogMetadataManager, metadata_database: Database
) -> None:
    """Managers ask every half minute; 10^5 partitions, nearly all of them alive or long gone, cost nothing."""
    fill = text("""
      INSERT INTO remote_log_partition (topic_id, partition, topic, highest_leader_epoch, delete_state, version)
      SELECT gen_random_uuid(), n, 'orders', 0, CASE n % 4 WHEN 0 THEN 2 END, 1 FROM generate_series(1, 100000) n""")
    await metadata_database.write(lambda connection: connection.execute(fill))
    partition = builders.topic_id_partition()
    step = RemotePartitionDeleteMetadata(
        topic_id_partition=partition,
        state=RemotePartitionDeleteState.DELETE_PARTITION_MARKED,
        event_timestamp_ms=1,
        broker_id=2,
    )
    await rlmm.put_remote_partition_delete_metadata(step)
    await metadata_database.read(lambda connection: connection.execute(text("VACUUM ANALYZE")))
    assert [deletion async for deletion in rlmm.list_partition_deletions()] == [step]
    rows = await metadata_database.read(
        lambda connection: connection.execute(
            text(
                f"EXPLAIN (ANALYZE, BUFFERS OFF, COSTS OFF, TIMING OFF, SUMMARY OFF) {UNFINISHED}"
            ),
            FIRST_PAGE | {"page_size": 500},
        )
    )
    plan = "\n".join(row[0] for row in rows)
    assert "remote_log_partition_deleting" in plan
    assert "Seq Scan" not in plan
    assert "Rows Removed" not in plan


async def test_large_partitions_are_listed_and_forgotten_in_batches(
    rlmm: PostgresRemoteLogMetadataManager, metadata_database: Database, signal: ChangeSignal
) -> None:
    """T20: a deletion that was cut off goes on."""
    partition = builders.topic_id_partition()
    await many_segments(metadata_database, partition, 1_203)
    segments = await listed(rlmm, partition)
    assert [segment.start_offset for segment in segments] == [n * 10 for n in range(1_203)]
    assert await rlmm.remote_log_size(partition, 0) == 1_203 * 1024
    next_segment = await rlmm.next_segment_with_txn_index(partition, 0, 0)
    assert next_segment is not None
    assert next_segment.start_offset == 990
    await metadata_database.write(
        lambda connection: connection.execute(
            text("UPDATE remote_log_partition SET delete_state = 2")
        )
    )
    big_batches = PostgresRemoteLogMetadataManager(
        metadata_database, signal, clock=SystemClock(), trace_id=lambda: "", forget_batch=500
    )
    assert await listed(rlmm, partition) == []
    assert await big_batches.forgetting.forget_left_over() == 1
    assert await big_batches.forgetting.forget_left_over() == 0
    for table in ("remote_log_segment", "remote_log_segment_epoch", "remote_log_epoch"):
        assert await count(metadata_database, table) == 0
    assert len(await rlmm.segment_history(segments[0].segment_id)) == 1


async def count(database: Database, table: str) -> int:
    query = text(f"SELECT count(*) FROM {table}")
    return await database.read(lambda connection: connection.scalar(query)) or 0


async def test_deletions_of_a_partition_end_up_with_no_rows_but_history(
    rlmm: PostgresRemoteLogMetadataManager, metadata_database: Database
) -> None:
    partition = builders.topic_id_partition()
    for start in range(0, 50, 10):
        epochs = {0: start, 1: start + 5}
        await brought_to(rlmm, builders.remote_segment(partition, start, start + 9, epochs))
    for state in RemotePartitionDeleteState:
        await rlmm.put_remote_partition_delete_metadata(
            RemotePartitionDeleteMetadata(
                topic_id_partition=partition, state=state, event_timestamp_ms=1, broker_id=1
            )
        )
    assert await flags(metadata_database) == {}


async def test_history_names_the_trace(rlmm: PostgresRemoteLogMetadataManager) -> None:
    metadata = await brought_to(rlmm, builders.remote_segment(builders.topic_id_partition(), 0, 9))
    history = await rlmm.segment_history(metadata.segment_id)
    assert {event.trace_id for event in history} == {"0af7651916cd43dd8448eb211c80319c"}


async def test_a_watch_is_woken_by_a_change_made_through_another_process(
    rlmm: PostgresRemoteLogMetadataManager, metadata_dsn: str
) -> None:
    """Its own polling is off: only the notification can wake it."""
    partition = builders.topic_id_partition()
    async with (
        Database(DatabaseOptions(dsn=metadata_dsn, pool_size=2)) as other_database,
        ChangeSignal(other_database) as other_signal,
        asyncio.timeout(60),
    ):
        other = manager(other_database, other_signal)
        seen = asyncio.Queue[RemoteLogSegmentMetadata | None]()

        async def follow() -> None:
            async with aclosing(rlmm.watch_partition(partition)) as watch:  # type: ignore[type-var]
                async for change in watch:
                    seen.put_nowait(change.segment)

        following = asyncio.create_task(follow())
        try:
            await brought_to(other, builders.remote_segment(partition, 0, 9))
            await seen.get()
            begun = time.monotonic()
            await brought_to(other, builders.remote_segment(partition, 10, 19))
            while (segment := await seen.get()) is None or segment.start_offset != 10:
                continue
            assert time.monotonic() - begun < 50
        finally:
            following.cancel()
            await asyncio.wait([following])


async def test_a_database_that_does_not_answer_is_unavailable_and_never_empty(
    metadata_dsn: str,
) -> None:
    partition = builders.topic_id_partition()
    options = DatabaseOptions(
        dsn="postgresql://nobody@127.0.0.1:1/none", attempts=2, retry_after_ms=321
    )
    async with Database(options) as database:
        rlmm = manager(database, ChangeSignal(database))
        for question in (
            rlmm.remote_log_segment_metadata(partition, 0, 0),
            rlmm.highest_offset_for_epoch(partition, 0),
            rlmm.segment_history(builders.remote_segment(partition, 0, 1).segment_id),
            listed(rlmm, partition),
            rlmm.add_remote_log_segment_metadata(builders.remote_segment(partition, 0, 1)),
        ):
            with pytest.raises(RemoteStorageUnavailableError) as refused:
                await question
            assert refused.value.reason is ErrorReason.DATABASE_UNAVAILABLE
            assert refused.value.retry_after_ms == 321
        assert not await rlmm.is_ready(partition)


async def test_a_partition_that_is_locked_for_too_long_is_unavailable_and_others_are_not(
    rlmm: PostgresRemoteLogMetadataManager, metadata_database: Database, metadata_dsn: str
) -> None:
    partition = builders.topic_id_partition()
    metadata = await brought_to(rlmm, builders.remote_segment(partition, 0, 9))
    impatient = DatabaseOptions(dsn=metadata_dsn, lock_timeout_ms=100)
    async with Database(impatient) as database:
        hurried = manager(database, ChangeSignal(database))

        async def hold(connection):  # type: ignore[no-untyped-def]
            await connection.execute(text("SELECT * FROM remote_log_partition FOR UPDATE"))
            with pytest.raises(RemoteStorageUnavailableError, match="too slow"):
                await move(hurried, metadata, DELETING)
            await brought_to(hurried, builders.remote_segment(builders.topic_id_partition(), 0, 9))
            assert await found(hurried, partition, 0, 5) == metadata.segment_id

        await metadata_database.write(hold)
        await move(hurried, metadata, DELETING)
