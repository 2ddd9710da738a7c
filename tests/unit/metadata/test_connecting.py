"""Who gives up while a connection is opened leaves none open.

A server keeps a connection that says nothing for a minute, and its database cannot be dropped meanwhile.
"""

import asyncio

from aquifer_metadata.adapters.postgres.change_signal import ChangeSignal
from aquifer_metadata.adapters.postgres.database import Database, DatabaseOptions
from fixtures.silent_postgres import SilentPostgres

WAIT_S = 60


async def test_a_signal_that_ends_closes_the_connection_of_its_listener(
    silent_postgres: SilentPostgres, no_collection: None
) -> None:
    options = DatabaseOptions(dsn=silent_postgres.dsn, connect_timeout_s=2 * WAIT_S)
    async with Database(options) as database, asyncio.timeout(WAIT_S):
        async with ChangeSignal(database):
            await silent_postgres.asked.wait()
        await silent_postgres.closed.wait()


async def test_a_caller_that_is_cancelled_closes_the_connection_made_for_it(
    silent_postgres: SilentPostgres, no_collection: None
) -> None:
    options = DatabaseOptions(dsn=silent_postgres.dsn, connect_timeout_s=2 * WAIT_S)
    async with Database(options) as database, asyncio.timeout(WAIT_S):
        asking = asyncio.create_task(database.ping())
        await silent_postgres.asked.wait()
        asking.cancel()
        await asyncio.wait([asking])
        del asking
        await silent_postgres.closed.wait()
