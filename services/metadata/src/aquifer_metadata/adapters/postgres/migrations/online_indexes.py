"""Indexes of large tables, built and dropped while everybody reads and writes.

PostgreSQL does that outside of transactions only. A build that is cut off leaves an index that is kept up but answers nothing; the
next attempt drops it and begins anew. An attempt that had just been completed is found done.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import structlog
from alembic import context, op
from sqlalchemy import Connection, text

__all__ = ["build_index", "drop_index"]

logger = structlog.get_logger(__name__)

_IS_VALID = text("""
SELECT i.indisvalid AND i.indisready FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE c.relname = :name AND pg_table_is_visible(i.indrelid)
""")
_SET_LOCK_TIMEOUT = text("SELECT set_config('lock_timeout', :wait, false)")


def build_index(name: str, table: str, columns: Sequence[str], where: str) -> None:
    """Builds a partial index beside traffic; idempotent, also after an attempt that was cut off anywhere.

    What the migration has done before is committed. Waits for transactions of others that began earlier, for `index_wait_s` of `migrate`
    at most; meanwhile nobody waits for it.
    """
    with _outside_of_transactions() as connection:
        valid = connection.scalar(_IS_VALID, {"name": name})
        if valid:
            return
        if valid is not None:
            logger.warning("unfinished_index_dropped", index=name, table=table)
            op.drop_index(name, table_name=table, postgresql_concurrently=True)
        logger.info("index_build_begun", index=name, table=table)
        op.create_index(
            name,
            table,
            list(columns),
            unique=False,
            postgresql_where=text(where),
            postgresql_concurrently=True,
        )


def drop_index(name: str, table: str) -> None:
    """Drops an index beside traffic; idempotent."""
    with _outside_of_transactions():
        op.drop_index(name, table_name=table, postgresql_concurrently=True, if_exists=True)


@contextmanager
def _outside_of_transactions() -> Iterator[Connection]:
    wait_ms = round(context.config.attributes["index_wait_s"] * 1000)
    with op.get_context().autocommit_block():
        connection = op.get_bind()
        before = connection.scalar(text("SHOW lock_timeout"))
        connection.execute(_SET_LOCK_TIMEOUT, {"wait": str(wait_ms)})
        yield connection
        # After a failure the connection is used no more.
        connection.execute(_SET_LOCK_TIMEOUT, {"wait": before})
