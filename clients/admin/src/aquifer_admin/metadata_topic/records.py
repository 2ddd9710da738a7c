"""Records of `__remote_log_metadata`, as `RemoteLogMetadataSerde` writes them (K-1.4)."""

from dataclasses import dataclass
from typing import Final, TypeAlias

from aquifer.common.v1 import partition_pb2, segment_pb2
from aquifer_core.errors import CorruptRecordError

from aquifer_admin.metadata_topic.flexible import FlexibleReader, FlexibleWriter

Segment: TypeAlias = segment_pb2.RemoteLogSegmentMetadata
Update: TypeAlias = segment_pb2.RemoteLogSegmentMetadataUpdate

State: TypeAlias = "segment_pb2.RemoteLogSegmentState.ValueType"

_FRAME_VERSION: Final = 1
_MESSAGE_VERSION: Final = 0
_SEGMENT: Final = 0
_UPDATE: Final = 1
_PARTITION_DELETE: Final = 2
_TXN_INDEX_EMPTY_TAG: Final = 0
_STATES: Final = (
    segment_pb2.REMOTE_LOG_SEGMENT_STATE_COPY_SEGMENT_STARTED,
    segment_pb2.REMOTE_LOG_SEGMENT_STATE_COPY_SEGMENT_FINISHED,
    segment_pb2.REMOTE_LOG_SEGMENT_STATE_DELETE_SEGMENT_STARTED,
    segment_pb2.REMOTE_LOG_SEGMENT_STATE_DELETE_SEGMENT_FINISHED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDelete:
    """A step of the deletion of a partition; `finished` when nothing of it is left."""

    topic_id: str
    partition: int
    finished: bool


Record: TypeAlias = Segment | Update | PartitionDelete


def decode(value: bytes) -> Record:
    """Read the value of a record.

    Raises:
        CorruptRecordError: it is of no known kind or version, or ends too early.
    """
    reader = FlexibleReader(value)
    frame, kind, version = reader.uvarint(), reader.uvarint(), reader.uvarint()
    if frame != _FRAME_VERSION or version != _MESSAGE_VERSION:
        raise CorruptRecordError(f"metadata record of version {frame}.{version}; 1.0 is known")
    if kind == _SEGMENT:
        return _read_segment(reader)
    if kind == _UPDATE:
        return _read_update(reader)
    if kind == _PARTITION_DELETE:
        return _read_partition_delete(reader)
    raise CorruptRecordError(f"metadata record of kind {kind}; 0 to 2 are known")


def encode(record: Segment | Update) -> bytes:
    """Write the value of a record."""
    writer = FlexibleWriter()
    is_segment = isinstance(record, Segment)
    for head in (_FRAME_VERSION, _SEGMENT if is_segment else _UPDATE, _MESSAGE_VERSION):
        writer.uvarint(head)
    if isinstance(record, Segment):
        _write_segment(writer, record)
    else:
        _write_update(writer, record)
    return writer.getvalue()


def _read_partition(reader: FlexibleReader) -> partition_pb2.TopicIdPartition:
    topic, topic_id, partition = reader.string(), reader.uuid(), reader.int32()
    reader.tagged_fields()
    return partition_pb2.TopicIdPartition(topic=topic, topic_id=topic_id, partition=partition)


def _read_id(reader: FlexibleReader) -> segment_pb2.RemoteLogSegmentId:
    partition, segment_id = _read_partition(reader), reader.uuid()
    reader.tagged_fields()
    return segment_pb2.RemoteLogSegmentId(topic_id_partition=partition, id=segment_id)


def _read_epoch(reader: FlexibleReader) -> tuple[int, int]:
    found = reader.int32(), reader.int64()
    reader.tagged_fields()
    return found


def _read_state(reader: FlexibleReader) -> State:
    """Values of the contracts are Kafka's plus one."""
    number = reader.int8()
    if not 0 <= number < len(_STATES):
        raise CorruptRecordError(f"segment state {number}; 0 to 3 are known")
    return _STATES[number]


def _read_segment(reader: FlexibleReader) -> Segment:
    found = Segment(
        segment_id=_read_id(reader),
        start_offset=reader.int64(),
        end_offset=reader.int64(),
        broker_id=reader.int32(),
        max_timestamp_ms=reader.int64(),
        event_timestamp_ms=reader.int64(),
        segment_leader_epochs=dict(reader.array(lambda: _read_epoch(reader))),
        segment_size_bytes=reader.int32(),
        custom_metadata=reader.nullable_bytes(),
        state=_read_state(reader),
    )
    found.txn_index_empty = reader.tagged_fields().get(_TXN_INDEX_EMPTY_TAG) == b"\x01"
    return found


def _read_update(reader: FlexibleReader) -> Update:
    found = Update(
        segment_id=_read_id(reader),
        broker_id=reader.int32(),
        event_timestamp_ms=reader.int64(),
        custom_metadata=reader.nullable_bytes(),
        state=_read_state(reader),
    )
    reader.tagged_fields()
    return found


def _read_partition_delete(reader: FlexibleReader) -> PartitionDelete:
    partition = _read_partition(reader)
    reader.int32()  # broker
    reader.int64()  # time
    state = reader.int8()
    reader.tagged_fields()
    return PartitionDelete(
        topic_id=partition.topic_id, partition=partition.partition, finished=state == 2
    )


def _write_id(writer: FlexibleWriter, segment_id: segment_pb2.RemoteLogSegmentId) -> None:
    where = segment_id.topic_id_partition
    writer.string(where.topic)
    writer.uuid(where.topic_id)
    writer.int32(where.partition)
    writer.tagged_fields()
    writer.uuid(segment_id.id)
    writer.tagged_fields()


def _write_segment(writer: FlexibleWriter, segment: Segment) -> None:
    _write_id(writer, segment.segment_id)
    writer.int64(segment.start_offset)
    writer.int64(segment.end_offset)
    writer.int32(segment.broker_id)
    writer.int64(segment.max_timestamp_ms)
    writer.int64(segment.event_timestamp_ms)
    writer.array_length(len(segment.segment_leader_epochs))
    for epoch, offset in sorted(segment.segment_leader_epochs.items()):
        writer.int32(epoch)
        writer.int64(offset)
        writer.tagged_fields()
    writer.int32(segment.segment_size_bytes)
    writer.nullable_bytes(_custom_metadata(segment))
    writer.int8(segment.state - 1)
    writer.tagged_fields({_TXN_INDEX_EMPTY_TAG: b"\x01"} if segment.txn_index_empty else None)


def _write_update(writer: FlexibleWriter, update: Update) -> None:
    _write_id(writer, update.segment_id)
    writer.int32(update.broker_id)
    writer.int64(update.event_timestamp_ms)
    writer.nullable_bytes(_custom_metadata(update))
    writer.int8(update.state - 1)
    writer.tagged_fields()


def _custom_metadata(record: Segment | Update) -> bytes | None:
    return record.custom_metadata if record.HasField("custom_metadata") else None
