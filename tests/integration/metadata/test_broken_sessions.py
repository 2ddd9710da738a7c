"""Connections that answer, but not as they should, are not given out for ever."""

from collections.abc import AsyncIterator

import builders
import pytest
from aquifer_core.clock import SystemClock
from aquifer_metadata.adapters.postgres.change_signal import ChangeSignal
from aquifer_metadata.adapters.postgres.database import Database, DatabaseOptions
from aquifer_metadata.adapters.postgres.remote_log_metadata_manager import (
    PostgresRemoteLogMetadataManager,
)
from contract.remote_log_metadata.steps import brought_to, found
from sqlalchemy import text


@pytest.fixture
async def one_connection(metadata_dsn: str) -> AsyncIterator[Database]:
    """A pool that always gives out the same connection, as a full one does to whoever comes first."""
    async with Database(DatabaseOptions(dsn=metadata_dsn, pool_size=1)) as database:
        yield database


def manager(database: Database) -> PostgresRemoteLogMetadataManager:
    return PostgresRemoteLogMetadataManager(
        database, ChangeSignal(database), clock=SystemClock(), trace_id=lambda: ""
    )


async def test_a_session_on_a_server_that_is_no_primary_any_more_is_left(
    one_connection: Database,
) -> None:
    """T37: an address that leads elsewhere by now, while the old server still answers, says so to writers for ever."""
    await one_connection.read(
        lambda connection: connection.execute(text("SET default_transaction_read_only = on"))
    )
    partition = builders.topic_id_partition()
    segment = await brought_to(manager(one_connection), builders.remote_segment(partition, 0, 9))
    assert await found(manager(one_connection), partition, 0, 5) == segment.segment_id
