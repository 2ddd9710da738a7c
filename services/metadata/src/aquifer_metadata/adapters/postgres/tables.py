"""The tables; `migrations/` makes them, a test holds both equal."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

metadata = MetaData()

# --- remote log segments -------------------------------------------------------------------------

remote_log_partition = Table(
    "remote_log_partition",
    metadata,
    Column("topic_id", Uuid, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("topic", Text, nullable=False),
    Column("highest_leader_epoch", Integer, nullable=False),
    Column("earliest_log_offset", BigInteger),
    Column("delete_state", SmallInteger),
    Column("version", BigInteger, nullable=False),
    Column("delete_event_timestamp_ms", BigInteger),
    Column("delete_broker_id", Integer),
    Column("history_from_version", BigInteger),
    Column("history_from_ms", BigInteger),
    # Nearly always empty, whatever the number of partitions and of those that were deleted.
    Index(
        "remote_log_partition_deleting",
        "topic_id",
        "partition",
        postgresql_where=text("delete_state = 0 OR delete_state = 1"),
    ),
)

remote_log_segment = Table(
    "remote_log_segment",
    metadata,
    Column("segment_id", Uuid, primary_key=True),
    Column("topic_id", Uuid, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("start_offset", BigInteger, nullable=False),
    Column("end_offset", BigInteger, nullable=False),
    Column("broker_id", Integer, nullable=False),
    Column("max_timestamp_ms", BigInteger, nullable=False),
    Column("event_timestamp_ms", BigInteger, nullable=False),
    Column("segment_size_bytes", BigInteger, nullable=False),
    Column("state", SmallInteger, nullable=False),
    Column("leader_epochs", ARRAY(Integer), nullable=False),
    Column("leader_epoch_offsets", ARRAY(BigInteger), nullable=False),
    Column("custom_metadata", LargeBinary),
    Column("txn_index_empty", Boolean, nullable=False),
    Column("writer_leader_epoch", Integer),
    Column("version", BigInteger, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("updated_at_ms", BigInteger, nullable=False),
    Index("remote_log_segment_by_offset", "topic_id", "partition", "start_offset", "segment_id"),
    Index("remote_log_segment_by_version", "topic_id", "partition", "version"),
)

remote_log_segment_epoch = Table(
    "remote_log_segment_epoch",
    metadata,
    Column("topic_id", Uuid, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("leader_epoch", Integer, primary_key=True, autoincrement=False),
    Column("segment_id", Uuid, primary_key=True),
    Column("start_offset", BigInteger, nullable=False),
    Column("end_offset", BigInteger, nullable=False),
    Column("txn_index_empty", Boolean, nullable=False),
    Column("referenced", Boolean, nullable=False),
    Column("finished_version", BigInteger),
)
Index(
    "remote_log_segment_epoch_lookup",
    remote_log_segment_epoch.c.topic_id,
    remote_log_segment_epoch.c.partition,
    remote_log_segment_epoch.c.leader_epoch,
    remote_log_segment_epoch.c.start_offset,
    unique=True,
    postgresql_where=remote_log_segment_epoch.c.referenced,
    postgresql_include=["end_offset", "segment_id"],
)
# Most topics have no transactions: of them nothing is in it, and that nothing was aborted is seen at once.
Index(
    "remote_log_segment_epoch_with_transactions",
    remote_log_segment_epoch.c.topic_id,
    remote_log_segment_epoch.c.partition,
    remote_log_segment_epoch.c.leader_epoch,
    remote_log_segment_epoch.c.start_offset,
    postgresql_where=text("referenced AND NOT txn_index_empty"),
)
# What a larger copy displaced; nearly always empty.
Index(
    "remote_log_segment_epoch_displaced",
    remote_log_segment_epoch.c.topic_id,
    remote_log_segment_epoch.c.partition,
    remote_log_segment_epoch.c.leader_epoch,
    remote_log_segment_epoch.c.start_offset,
    postgresql_where=text("finished_version IS NOT NULL AND NOT referenced"),
)

remote_log_epoch = Table(
    "remote_log_epoch",
    metadata,
    Column("topic_id", Uuid, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("leader_epoch", Integer, primary_key=True, autoincrement=False),
    Column("highest_offset", BigInteger, nullable=False),
)

remote_log_segment_event = Table(
    "remote_log_segment_event",
    metadata,
    Column("sequence", BigInteger, Identity(), primary_key=True),
    Column("topic_id", Uuid, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("timestamp_ms", BigInteger, nullable=False),
    Column("segment_id", Uuid),
    Column("from_state", SmallInteger),
    Column("to_state", SmallInteger),
    Column("broker_id", Integer),
    Column("event_timestamp_ms", BigInteger),
    Column("custom_metadata", LargeBinary),
    Column("leader_epoch", Integer),
    Column("reason", Text, nullable=False),
    Column("trace_id", Text, nullable=False),
    Column("delete_state", SmallInteger),
    Column("earliest_log_offset", BigInteger),
    Column("gone_segment", JSONB),
    Index("remote_log_segment_event_by_version", "topic_id", "partition", "version"),
    Index("remote_log_segment_event_by_segment", "segment_id", "sequence"),
)

# --- the cluster ---------------------------------------------------------------------------------

cluster = Table(
    "cluster",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("cluster_id", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
)

cluster_change = Table(
    "cluster_change",
    metadata,
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("broker_ids", ARRAY(Integer), nullable=False),
    Column("topic_ids", ARRAY(Uuid), nullable=False),
    Column("deleted_topic_ids", ARRAY(Uuid), nullable=False),
    Column("broker_configs", ARRAY(Text), nullable=False),
)

broker = Table(
    "broker",
    metadata,
    Column("broker_id", Integer, primary_key=True, autoincrement=False),
    Column("incarnation", Text, nullable=False),
    Column("replaced_incarnations", ARRAY(Text), nullable=False),
    Column("broker_epoch", BigInteger, nullable=False),
    Column("endpoints", JSONB, nullable=False),
    Column("rack", Text, nullable=False),
    Column("broker_log_address", Text, nullable=False),
    Column("log_dirs", ARRAY(Text), nullable=False),
    Column("alive", Boolean, nullable=False),
    Column("lease_expires_at", DateTime(timezone=True), nullable=False),
    Index("broker_alive_by_lease", "lease_expires_at", postgresql_where=text("alive")),
)

topic = Table(
    "topic",
    metadata,
    Column("topic_id", Uuid, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("collision_name", Text, nullable=False, unique=True),
    Column("configs", JSONB, nullable=False),
)

topic_partition = Table(
    "topic_partition",
    metadata,
    Column("topic_id", Uuid, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("replicas", ARRAY(Integer), nullable=False),
    Column("isr", ARRAY(Integer), nullable=False),
    Column("leader", Integer, nullable=False),
    Column("leader_epoch", Integer, nullable=False),
    Column("partition_epoch", Integer, nullable=False),
    Column("target_replicas", ARRAY(Integer), nullable=False),
    Index("topic_partition_by_leader", "leader"),
    Index("topic_partition_by_replica", "replicas", postgresql_using="gin"),
)

broker_config = Table(
    "broker_config",
    metadata,
    Column("name", Text, primary_key=True),
    Column("configs", JSONB, nullable=False),
)

group_offset = Table(
    "group_offset",
    metadata,
    Column("group_id", Text, primary_key=True),
    Column("topic", Text, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("offset", BigInteger, nullable=False),
    Column("leader_epoch", Integer, nullable=False),
    Column("metadata", Text, nullable=False),
    Column("commit_timestamp_ms", BigInteger, nullable=False),
    Index("group_offset_by_topic", "topic"),
)

producer_id_block = Table(
    "producer_id_block",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("next_producer_id", BigInteger, nullable=False),
)

transaction_state = Table(
    "transaction_state",
    metadata,
    Column("transactional_id", Text, primary_key=True),
    Column("producer_id", BigInteger, nullable=False),
    Column("producer_epoch", Integer, nullable=False),
    Column("timeout_ms", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("partitions", JSONB, nullable=False),
    Column("start_timestamp_ms", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
)

task_pause = Table(
    "task_pause",
    metadata,
    Column("topic", Text, primary_key=True),
    # Of whole topics the zero id and the partition -1.
    Column("topic_id", Uuid, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("since_ms", BigInteger, nullable=False),
    Column("paused_by", Text, nullable=False),
    Column("reason", Text, nullable=False),
)
