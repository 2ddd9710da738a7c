"""Questions that take several statements: what changes between two of them hides nothing else."""

from collections.abc import AsyncIterator, Callable, Coroutine
from itertools import count
from typing import Any

import builders
import pytest
from aquifer_core.clock import SystemClock
from aquifer_metadata.adapters.postgres.change_signal import ChangeSignal
from aquifer_metadata.adapters.postgres.database import Database, DatabaseOptions
from aquifer_metadata.adapters.postgres.remote_log_metadata_manager import (
    PostgresRemoteLogMetadataManager,
)
from contract.remote_log_metadata.steps import DELETING, brought_to, move
from sqlalchemy import event
from sqlalchemy.util import await_only

PAGE = 32
"""Segments that a search by time reads at once."""


Work = Callable[[], Coroutine[Any, Any, Any]]


@pytest.fixture
async def asked_database(metadata_dsn: str) -> AsyncIterator[Database]:
    """A pool of those who ask, beside that of those who change."""
    async with Database(DatabaseOptions(dsn=metadata_dsn, pool_size=1)) as database:
        yield database


def before_statement(database: Database, number: int, change: Work) -> None:
    """Brings a change about before a pool's statement of that number, counted from 1."""
    statements = count(1)

    def changed(*_: object) -> None:
        if next(statements) == number:
            await_only(change())

    event.listen(database.engine.sync_engine, "before_cursor_execute", changed)


def manager(database: Database) -> PostgresRemoteLogMetadataManager:
    return PostgresRemoteLogMetadataManager(
        database, ChangeSignal(database), clock=SystemClock(), trace_id=lambda: ""
    )


async def test_a_search_by_time_misses_nothing_that_is_behind_what_is_deleted_meanwhile(
    metadata_database: Database, asked_database: Database
) -> None:
    """SR-26: a consumer that begins at a time would begin too late, or be told that there is nothing."""
    rlmm = manager(metadata_database)
    partition = builders.topic_id_partition()
    others = [
        await brought_to(rlmm, builders.remote_segment(partition, at, at + 9, {9: at}))
        for at in range(0, 10 * PAGE, 10)
    ]
    for at in (10 * PAGE, 10 * PAGE + 10):
        await brought_to(rlmm, builders.remote_segment(partition, at, at + 9))
    before_statement(asked_database, 2, lambda: move(rlmm, others[0], DELETING))
    wanted = await manager(asked_database).find_segment_for_timestamp(partition, {0: 0}, 0)
    assert wanted is not None
    assert wanted.start_offset == 10 * PAGE


async def test_a_search_by_time_ends_behind_any_number_of_copies_of_the_same_offsets(
    metadata_database: Database,
) -> None:
    """As leaders that replaced one another leave them."""
    rlmm = manager(metadata_database)
    partition = builders.topic_id_partition()
    for number in range(PAGE + 8):
        end = 20 + number // 3
        await brought_to(rlmm, builders.remote_segment(partition, 0, end, {9 + number: 0}))
    assert await rlmm.find_segment_for_timestamp(partition, {0: 0}, 0) is None
    wanted = await brought_to(rlmm, builders.remote_segment(partition, 0, 9))
    found = await rlmm.find_segment_for_timestamp(partition, {0: 0}, 0)
    assert found is not None
    assert found.segment_id == wanted.segment_id
