"""Segments that may have a transaction index are found without a look at all the others that follow.

The index is built beside writers: a look at every range of an epoch takes seconds per million of them.
"""

from collections.abc import Sequence

from aquifer_metadata.adapters.postgres.migrations.online_indexes import build_index, drop_index

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


_INDEX = "remote_log_segment_epoch_with_transactions"
_TABLE = "remote_log_segment_epoch"


def upgrade() -> None:
    build_index(
        _INDEX,
        _TABLE,
        ["topic_id", "partition", "leader_epoch", "start_offset"],
        where="referenced AND NOT txn_index_empty",
    )


def downgrade() -> None:
    drop_index(_INDEX, _TABLE)
