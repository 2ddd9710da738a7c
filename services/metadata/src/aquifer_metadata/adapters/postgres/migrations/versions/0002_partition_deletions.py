"""Deletions of partitions that have not finished can be listed."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.add_column(
        "remote_log_partition",
        sa.Column("delete_event_timestamp_ms", sa.BigInteger(), nullable=True),
    )
    op.add_column(
        "remote_log_partition", sa.Column("delete_broker_id", sa.Integer(), nullable=True)
    )
    op.create_index(
        "remote_log_partition_deleting",
        "remote_log_partition",
        ["topic_id", "partition"],
        unique=False,
        postgresql_where=sa.text("delete_state = 0 OR delete_state = 1"),
    )


def downgrade() -> None:
    op.drop_index(
        "remote_log_partition_deleting",
        table_name="remote_log_partition",
        postgresql_where=sa.text("delete_state = 0 OR delete_state = 1"),
    )
    op.drop_column("remote_log_partition", "delete_broker_id")
    op.drop_column("remote_log_partition", "delete_event_timestamp_ms")
