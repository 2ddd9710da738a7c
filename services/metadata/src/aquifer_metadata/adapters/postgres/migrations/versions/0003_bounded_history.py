"""A partition knows from where on its history is whole, since the history is pruned."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.add_column(
        "remote_log_partition", sa.Column("history_from_version", sa.BigInteger(), nullable=True)
    )
    op.add_column(
        "remote_log_partition", sa.Column("history_from_ms", sa.BigInteger(), nullable=True)
    )


def downgrade() -> None:
    op.drop_column("remote_log_partition", "history_from_ms")
    op.drop_column("remote_log_partition", "history_from_version")
