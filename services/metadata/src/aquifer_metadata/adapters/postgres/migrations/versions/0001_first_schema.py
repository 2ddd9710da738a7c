"""The first schema."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0001"
down_revision: str | None = None
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "broker",
        sa.Column("broker_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("replaced_incarnations", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("broker_epoch", sa.BigInteger(), nullable=False),
        sa.Column("endpoints", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("rack", sa.Text(), nullable=False),
        sa.Column("broker_log_address", sa.Text(), nullable=False),
        sa.Column("log_dirs", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("alive", sa.Boolean(), nullable=False),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("broker_id"),
    )
    op.create_index(
        "broker_alive_by_lease",
        "broker",
        ["lease_expires_at"],
        unique=False,
        postgresql_where=sa.text("alive"),
    )
    op.create_table(
        "broker_config",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("configs", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "cluster",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "cluster_change",
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("broker_ids", postgresql.ARRAY(sa.Integer()), nullable=False),
        sa.Column("topic_ids", postgresql.ARRAY(sa.Uuid()), nullable=False),
        sa.Column("deleted_topic_ids", postgresql.ARRAY(sa.Uuid()), nullable=False),
        sa.Column("broker_configs", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.PrimaryKeyConstraint("version"),
    )
    op.create_table(
        "group_offset",
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("leader_epoch", sa.Integer(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("commit_timestamp_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("group_id", "topic", "partition"),
    )
    op.create_index("group_offset_by_topic", "group_offset", ["topic"], unique=False)
    op.create_table(
        "producer_id_block",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("next_producer_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "remote_log_epoch",
        sa.Column("topic_id", sa.Uuid(), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("leader_epoch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("highest_offset", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("topic_id", "partition", "leader_epoch"),
    )
    op.create_table(
        "remote_log_partition",
        sa.Column("topic_id", sa.Uuid(), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("highest_leader_epoch", sa.Integer(), nullable=False),
        sa.Column("earliest_log_offset", sa.BigInteger(), nullable=True),
        sa.Column("delete_state", sa.SmallInteger(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("topic_id", "partition"),
    )
    op.create_table(
        "remote_log_segment",
        sa.Column("segment_id", sa.Uuid(), nullable=False),
        sa.Column("topic_id", sa.Uuid(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("start_offset", sa.BigInteger(), nullable=False),
        sa.Column("end_offset", sa.BigInteger(), nullable=False),
        sa.Column("broker_id", sa.Integer(), nullable=False),
        sa.Column("max_timestamp_ms", sa.BigInteger(), nullable=False),
        sa.Column("event_timestamp_ms", sa.BigInteger(), nullable=False),
        sa.Column("segment_size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.SmallInteger(), nullable=False),
        sa.Column("leader_epochs", postgresql.ARRAY(sa.Integer()), nullable=False),
        sa.Column("leader_epoch_offsets", postgresql.ARRAY(sa.BigInteger()), nullable=False),
        sa.Column("custom_metadata", sa.LargeBinary(), nullable=True),
        sa.Column("txn_index_empty", sa.Boolean(), nullable=False),
        sa.Column("writer_leader_epoch", sa.Integer(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("updated_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("segment_id"),
    )
    op.create_index(
        "remote_log_segment_by_offset",
        "remote_log_segment",
        ["topic_id", "partition", "start_offset", "segment_id"],
        unique=False,
    )
    op.create_index(
        "remote_log_segment_by_version",
        "remote_log_segment",
        ["topic_id", "partition", "version"],
        unique=False,
    )
    op.create_table(
        "remote_log_segment_epoch",
        sa.Column("topic_id", sa.Uuid(), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("leader_epoch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("segment_id", sa.Uuid(), nullable=False),
        sa.Column("start_offset", sa.BigInteger(), nullable=False),
        sa.Column("end_offset", sa.BigInteger(), nullable=False),
        sa.Column("txn_index_empty", sa.Boolean(), nullable=False),
        sa.Column("referenced", sa.Boolean(), nullable=False),
        sa.Column("finished_version", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("topic_id", "partition", "leader_epoch", "segment_id"),
    )
    op.create_index(
        "remote_log_segment_epoch_lookup",
        "remote_log_segment_epoch",
        ["topic_id", "partition", "leader_epoch", "start_offset"],
        unique=True,
        postgresql_where=sa.text("referenced"),
        postgresql_include=["end_offset", "segment_id"],
    )
    op.create_index(
        "remote_log_segment_epoch_displaced",
        "remote_log_segment_epoch",
        ["topic_id", "partition", "leader_epoch", "start_offset"],
        unique=False,
        postgresql_where=sa.text("finished_version IS NOT NULL AND NOT referenced"),
    )
    op.create_table(
        "remote_log_segment_event",
        sa.Column("sequence", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("topic_id", sa.Uuid(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("timestamp_ms", sa.BigInteger(), nullable=False),
        sa.Column("segment_id", sa.Uuid(), nullable=True),
        sa.Column("from_state", sa.SmallInteger(), nullable=True),
        sa.Column("to_state", sa.SmallInteger(), nullable=True),
        sa.Column("broker_id", sa.Integer(), nullable=True),
        sa.Column("event_timestamp_ms", sa.BigInteger(), nullable=True),
        sa.Column("custom_metadata", sa.LargeBinary(), nullable=True),
        sa.Column("leader_epoch", sa.Integer(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("trace_id", sa.Text(), nullable=False),
        sa.Column("delete_state", sa.SmallInteger(), nullable=True),
        sa.Column("earliest_log_offset", sa.BigInteger(), nullable=True),
        sa.Column("gone_segment", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.PrimaryKeyConstraint("sequence"),
    )
    op.create_index(
        "remote_log_segment_event_by_segment",
        "remote_log_segment_event",
        ["segment_id", "sequence"],
        unique=False,
    )
    op.create_index(
        "remote_log_segment_event_by_version",
        "remote_log_segment_event",
        ["topic_id", "partition", "version"],
        unique=False,
    )
    op.create_table(
        "topic",
        sa.Column("topic_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("collision_name", sa.Text(), nullable=False),
        sa.Column("configs", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.PrimaryKeyConstraint("topic_id"),
        sa.UniqueConstraint("collision_name"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "topic_partition",
        sa.Column("topic_id", sa.Uuid(), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("replicas", postgresql.ARRAY(sa.Integer()), nullable=False),
        sa.Column("isr", postgresql.ARRAY(sa.Integer()), nullable=False),
        sa.Column("leader", sa.Integer(), nullable=False),
        sa.Column("leader_epoch", sa.Integer(), nullable=False),
        sa.Column("partition_epoch", sa.Integer(), nullable=False),
        sa.Column("target_replicas", postgresql.ARRAY(sa.Integer()), nullable=False),
        sa.PrimaryKeyConstraint("topic_id", "partition"),
    )
    op.create_index("topic_partition_by_leader", "topic_partition", ["leader"], unique=False)
    op.create_index(
        "topic_partition_by_replica",
        "topic_partition",
        ["replicas"],
        unique=False,
        postgresql_using="gin",
    )
    op.create_table(
        "transaction_state",
        sa.Column("transactional_id", sa.Text(), nullable=False),
        sa.Column("producer_id", sa.BigInteger(), nullable=False),
        sa.Column("producer_epoch", sa.Integer(), nullable=False),
        sa.Column("timeout_ms", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("partitions", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("start_timestamp_ms", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("transactional_id"),
    )


def downgrade() -> None:
    op.drop_table("transaction_state")
    op.drop_index(
        "topic_partition_by_replica", table_name="topic_partition", postgresql_using="gin"
    )
    op.drop_index("topic_partition_by_leader", table_name="topic_partition")
    op.drop_table("topic_partition")
    op.drop_table("topic")
    op.drop_index("remote_log_segment_event_by_version", table_name="remote_log_segment_event")
    op.drop_index("remote_log_segment_event_by_segment", table_name="remote_log_segment_event")
    op.drop_table("remote_log_segment_event")
    op.drop_index(
        "remote_log_segment_epoch_lookup",
        table_name="remote_log_segment_epoch",
        postgresql_where="referenced",
    )
    op.drop_index(
        "remote_log_segment_epoch_displaced",
        table_name="remote_log_segment_epoch",
        postgresql_where=sa.text("finished_version IS NOT NULL AND NOT referenced"),
    )
    op.drop_table("remote_log_segment_epoch")
    op.drop_index("remote_log_segment_by_version", table_name="remote_log_segment")
    op.drop_index("remote_log_segment_by_offset", table_name="remote_log_segment")
    op.drop_table("remote_log_segment")
    op.drop_table("remote_log_partition")
    op.drop_table("remote_log_epoch")
    op.drop_table("producer_id_block")
    op.drop_index("group_offset_by_topic", table_name="group_offset")
    op.drop_table("group_offset")
    op.drop_table("cluster_change")
    op.drop_table("cluster")
    op.drop_table("broker_config")
    op.drop_index("broker_alive_by_lease", table_name="broker", postgresql_where=sa.text("alive"))
    op.drop_table("broker")
