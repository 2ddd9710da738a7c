"""Segments that may have a transaction index are found without a look at all the others that follow."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_index(
        "remote_log_segment_epoch_with_transactions",
        "remote_log_segment_epoch",
        ["topic_id", "partition", "leader_epoch", "start_offset"],
        unique=False,
        postgresql_where=sa.text("referenced AND NOT txn_index_empty"),
    )


def downgrade() -> None:
    op.drop_index(
        "remote_log_segment_epoch_with_transactions",
        table_name="remote_log_segment_epoch",
        postgresql_where=sa.text("referenced AND NOT txn_index_empty"),
    )
