"""A statement that goes to psycopg directly: for the hottest ones, where SQLAlchemy would cost more than PostgreSQL."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import psycopg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres.tracing import statement_span


class DriverStatement:
    """A reading statement in the driver's own form (`%(name)s`), on a connection of the pool like any other.

    It is prepared on each connection from its first use on. Errors are SQLAlchemy's, so that the database treats them alike.
    """

    def __init__(self, text: str) -> None:
        self.text: Final = text

    async def rows(
        self, connection: AsyncConnection, values: Mapping[str, Any]
    ) -> list[Sequence[Any]]:
        """Runs it outside of any transaction and returns all rows."""
        pooled = connection.sync_connection
        assert pooled is not None
        driver = cast("psycopg.AsyncConnection[Sequence[Any]]", pooled.connection.driver_connection)
        with statement_span(pooled, self.text):
            try:
                cursor = await driver.execute(self.text, values, prepare=True)
                return await cursor.fetchall()
            except psycopg.Error as error:
                if lost := driver.closed:
                    await connection.invalidate(error)
                raise DBAPIError.instance(
                    self.text,
                    None,
                    error,
                    psycopg.Error,
                    hide_parameters=True,
                    connection_invalidated=lost,
                    dialect=pooled.dialect,
                ) from error
