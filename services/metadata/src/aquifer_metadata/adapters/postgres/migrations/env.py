"""Runs migrations on the connection that `schema.py` hands over."""

from alembic import context

from aquifer_metadata.adapters.postgres.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
