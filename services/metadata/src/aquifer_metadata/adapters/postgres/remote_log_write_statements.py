"""SQL of `remote_log_writes`. Each statement of a transaction costs a round trip, so related changes share one."""

from sqlalchemy import text

from aquifer_metadata.adapters.postgres.remote_log_rows import SEGMENT_COLUMNS

TAKE_PARTITION = text("""
INSERT INTO remote_log_partition AS p (topic_id, partition, topic, highest_leader_epoch, version)
VALUES (:topic_id, :partition, :topic, :leader_epoch, 1)
ON CONFLICT (topic_id, partition) DO UPDATE
SET version = p.version + 1, highest_leader_epoch = greatest(p.highest_leader_epoch, excluded.highest_leader_epoch)
RETURNING p.version, p.delete_state, p.highest_leader_epoch, p.earliest_log_offset
""")

ADD = text("""
WITH added AS (
  INSERT INTO remote_log_segment (segment_id, topic_id, partition, start_offset, end_offset, broker_id,
    max_timestamp_ms, event_timestamp_ms, segment_size_bytes, state, leader_epochs, leader_epoch_offsets,
    custom_metadata, txn_index_empty, writer_leader_epoch, version, created_at_ms, updated_at_ms)
  SELECT :segment_id, :topic_id, :partition, :start_offset, :end_offset, :broker_id,
    :max_timestamp_ms, :event_timestamp_ms, :segment_size_bytes, :state, CAST(:epochs AS int[]),
    CAST(:epoch_starts AS bigint[]), CAST(:custom_metadata AS bytea), :txn_index_empty, CAST(:writer_leader_epoch AS int),
    :version, :now_ms, :now_ms
  WHERE NOT EXISTS (SELECT FROM remote_log_segment_event WHERE segment_id = :segment_id)
  ON CONFLICT (segment_id) DO NOTHING
  RETURNING segment_id),
epochs AS (
  INSERT INTO remote_log_segment_epoch (topic_id, partition, leader_epoch, start_offset, segment_id, end_offset,
    txn_index_empty, referenced)
  SELECT :topic_id, :partition, r.leader_epoch, r.start_offset, added.segment_id, r.end_offset, :txn_index_empty, false
  FROM added, unnest(CAST(:epochs AS int[]), CAST(:epoch_starts AS bigint[]), CAST(:epoch_ends AS bigint[]))
    AS r (leader_epoch, start_offset, end_offset)),
logged AS (
  INSERT INTO remote_log_segment_event (topic_id, partition, version, timestamp_ms, segment_id, from_state, to_state,
    broker_id, event_timestamp_ms, custom_metadata, leader_epoch, reason, trace_id)
  SELECT :topic_id, :partition, :version, :now_ms, added.segment_id, NULL, :state, :broker_id, :event_timestamp_ms,
    CAST(:custom_metadata AS bytea), CAST(:writer_leader_epoch AS int), :reason, :trace_id
  FROM added)
SELECT count(*) FROM added
""")

FIND = text(f"SELECT {SEGMENT_COLUMNS} FROM remote_log_segment s WHERE s.segment_id = :segment_id")

LAST_EVENT = text("""
SELECT topic_id, partition, to_state FROM remote_log_segment_event
WHERE segment_id = :segment_id ORDER BY sequence DESC LIMIT 1
""")

UPDATE = text("""
WITH updated AS (
  UPDATE remote_log_segment SET state = :state, broker_id = :broker_id, event_timestamp_ms = :event_timestamp_ms,
    custom_metadata = CAST(:custom_metadata AS bytea), version = :version, updated_at_ms = :now_ms,
    writer_leader_epoch = coalesce(CAST(:writer_leader_epoch AS int), writer_leader_epoch)
  WHERE segment_id = :segment_id)
INSERT INTO remote_log_segment_event (topic_id, partition, version, timestamp_ms, segment_id, from_state, to_state,
  broker_id, event_timestamp_ms, custom_metadata, leader_epoch, reason, trace_id)
VALUES (:topic_id, :partition, :version, :now_ms, :segment_id, :from_state, :state, :broker_id, :event_timestamp_ms,
  CAST(:custom_metadata AS bytea), CAST(:writer_leader_epoch AS int), :reason, :trace_id)
""")

REMOVE = text("""
WITH removed AS (
  DELETE FROM remote_log_segment s WHERE s.segment_id = :segment_id
  RETURNING to_jsonb(s) - 'custom_metadata' AS gone),
epochs AS (
  DELETE FROM remote_log_segment_epoch
  WHERE topic_id = :topic_id AND partition = :partition AND leader_epoch = ANY(CAST(:epochs AS int[]))
    AND segment_id = :segment_id)
INSERT INTO remote_log_segment_event (topic_id, partition, version, timestamp_ms, segment_id, from_state, to_state,
  broker_id, event_timestamp_ms, custom_metadata, leader_epoch, reason, trace_id, gone_segment)
SELECT :topic_id, :partition, :version, :now_ms, :segment_id, :from_state, :state, :broker_id, :event_timestamp_ms,
  CAST(:custom_metadata AS bytea), CAST(:writer_leader_epoch AS int), :reason, :trace_id, removed.gone
FROM removed
""")

DELETED_BEFORE = text("""
SELECT delete_event_timestamp_ms IS NOT NULL FROM remote_log_partition WHERE topic_id = :topic_id AND partition = :partition
""")

MOVE_DELETION = text("""
WITH moved AS (
  UPDATE remote_log_partition SET delete_state = :delete_state, delete_event_timestamp_ms = :event_timestamp_ms,
    delete_broker_id = :broker_id
  WHERE topic_id = :topic_id AND partition = :partition)
INSERT INTO remote_log_segment_event (topic_id, partition, version, timestamp_ms, broker_id, event_timestamp_ms, reason,
  trace_id, delete_state)
VALUES (:topic_id, :partition, :version, :now_ms, :broker_id, :event_timestamp_ms, '', :trace_id, :delete_state)
""")

MOVE_EARLIEST = text("""
WITH moved AS (
  UPDATE remote_log_partition SET earliest_log_offset = :offset WHERE topic_id = :topic_id AND partition = :partition)
INSERT INTO remote_log_segment_event (topic_id, partition, version, timestamp_ms, leader_epoch, reason, trace_id,
  earliest_log_offset)
VALUES (:topic_id, :partition, :version, :now_ms, :leader_epoch, '', :trace_id, :offset)
""")

SEE_LEADERS = text("""
INSERT INTO remote_log_partition AS p (topic_id, partition, topic, highest_leader_epoch, version)
VALUES (:topic_id, :partition, :topic, :leader_epoch, 0)
ON CONFLICT (topic_id, partition) DO UPDATE SET highest_leader_epoch = excluded.highest_leader_epoch
WHERE p.highest_leader_epoch < excluded.highest_leader_epoch
""")
