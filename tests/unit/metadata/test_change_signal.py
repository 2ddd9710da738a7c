import asyncio
import gc
from collections.abc import Iterator

import pytest
from aquifer_metadata.adapters.postgres.change_signal import ChangeSignal
from aquifer_metadata.adapters.postgres.database import Database, DatabaseOptions

WAIT_S = 60


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


async def test_a_signal_that_ends_while_its_listener_connects_leaves_no_connection_open(
    no_collection: None,
) -> None:
    """A server keeps a connection that says nothing for a minute, and its database cannot be dropped meanwhile."""
    asked, closed = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        asked.set()
        await reader.read()
        closed.set()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    options = DatabaseOptions(dsn=f"postgresql://a@127.0.0.1:{port}/a", connect_timeout_s=WAIT_S)
    async with server, Database(options) as database, asyncio.timeout(WAIT_S - 10):
        async with ChangeSignal(database):
            await asked.wait()
        await closed.wait()
