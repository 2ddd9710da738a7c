"""Remote log segments: names, metadata, updates, states, index types, manifests."""

from aquifer.common.v1 import segment_pb2 as pb
from aquifer_core.ids import RemoteLogSegmentId
from aquifer_core.segment import (
    IndexType,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    StoredSegment,
)
from aquifer_core.state import RemoteLogSegmentState, RemotePartitionDeleteState

from aquifer_rpc.convert._field import required, shifted_from_pb
from aquifer_rpc.convert._partition import tip_from_pb, tip_to_pb, uuid_from_pb


def segment_state_to_pb(state: RemoteLogSegmentState) -> pb.RemoteLogSegmentState.ValueType:
    """A segment state to its enum."""
    return pb.RemoteLogSegmentState.ValueType(state + 1)


def segment_state_from_pb(number: int, field: str = "state") -> RemoteLogSegmentState:
    """A segment state from its enum.

    Raises:
        InvalidRequestError: unspecified or unknown.
    """
    return shifted_from_pb(RemoteLogSegmentState, number, field)


def partition_delete_state_to_pb(
    state: RemotePartitionDeleteState,
) -> pb.RemotePartitionDeleteState.ValueType:
    """A partition delete state to its enum."""
    return pb.RemotePartitionDeleteState.ValueType(state + 1)


def partition_delete_state_from_pb(number: int, field: str = "state") -> RemotePartitionDeleteState:
    """A partition delete state from its enum.

    Raises:
        InvalidRequestError: unspecified or unknown.
    """
    return shifted_from_pb(RemotePartitionDeleteState, number, field)


def index_type_to_pb(index_type: IndexType) -> pb.IndexType.ValueType:
    """An index type to its enum."""
    return pb.IndexType.ValueType(index_type + 1)


def index_type_from_pb(number: int, field: str = "index_type") -> IndexType:
    """An index type from its enum.

    Raises:
        InvalidRequestError: unspecified or unknown.
    """
    return shifted_from_pb(IndexType, number, field)


def segment_id_to_pb(segment_id: RemoteLogSegmentId) -> pb.RemoteLogSegmentId:
    """A segment id to its message."""
    return pb.RemoteLogSegmentId(
        topic_id_partition=tip_to_pb(segment_id.topic_id_partition), id=str(segment_id.id)
    )


def segment_id_from_pb(
    message: pb.RemoteLogSegmentId, field: str = "segment_id"
) -> RemoteLogSegmentId:
    """A segment id from its message.

    Raises:
        InvalidRequestError: no partition, or a malformed id.
    """
    tip = required(message, "topic_id_partition", message.topic_id_partition, field)
    return RemoteLogSegmentId(
        tip_from_pb(tip, f"{field}.topic_id_partition"), uuid_from_pb(message.id, f"{field}.id")
    )


def segment_metadata_to_pb(metadata: RemoteLogSegmentMetadata) -> pb.RemoteLogSegmentMetadata:
    """Segment metadata to its message."""
    return pb.RemoteLogSegmentMetadata(
        segment_id=segment_id_to_pb(metadata.segment_id),
        start_offset=metadata.start_offset,
        end_offset=metadata.end_offset,
        broker_id=metadata.broker_id,
        max_timestamp_ms=metadata.max_timestamp_ms,
        event_timestamp_ms=metadata.event_timestamp_ms,
        segment_size_bytes=metadata.segment_size_bytes,
        state=segment_state_to_pb(metadata.state),
        segment_leader_epochs=metadata.segment_leader_epochs,
        custom_metadata=metadata.custom_metadata,
        txn_index_empty=metadata.txn_index_empty,
    )


def segment_metadata_from_pb(
    message: pb.RemoteLogSegmentMetadata, field: str = "metadata"
) -> RemoteLogSegmentMetadata:
    """Segment metadata from its message.

    Raises:
        InvalidRequestError: something is absent, or the values break a rule of `RemoteLogSegmentMetadata`.
    """
    segment_id = required(message, "segment_id", message.segment_id, field)
    return RemoteLogSegmentMetadata(
        segment_id=segment_id_from_pb(segment_id, f"{field}.segment_id"),
        start_offset=message.start_offset,
        end_offset=message.end_offset,
        broker_id=message.broker_id,
        max_timestamp_ms=message.max_timestamp_ms,
        event_timestamp_ms=message.event_timestamp_ms,
        segment_size_bytes=message.segment_size_bytes,
        state=segment_state_from_pb(message.state, f"{field}.state"),
        segment_leader_epochs=dict(message.segment_leader_epochs),
        custom_metadata=message.custom_metadata if message.HasField("custom_metadata") else None,
        txn_index_empty=message.txn_index_empty,
    )


def segment_update_to_pb(
    update: RemoteLogSegmentMetadataUpdate,
) -> pb.RemoteLogSegmentMetadataUpdate:
    """A state change of a segment to its message."""
    return pb.RemoteLogSegmentMetadataUpdate(
        segment_id=segment_id_to_pb(update.segment_id),
        event_timestamp_ms=update.event_timestamp_ms,
        custom_metadata=update.custom_metadata,
        state=segment_state_to_pb(update.state),
        broker_id=update.broker_id,
        reason=update.reason,
    )


def segment_update_from_pb(
    message: pb.RemoteLogSegmentMetadataUpdate, field: str = "update"
) -> RemoteLogSegmentMetadataUpdate:
    """A state change of a segment from its message.

    Raises:
        InvalidRequestError: something is absent or malformed.
    """
    segment_id = required(message, "segment_id", message.segment_id, field)
    return RemoteLogSegmentMetadataUpdate(
        segment_id=segment_id_from_pb(segment_id, f"{field}.segment_id"),
        event_timestamp_ms=message.event_timestamp_ms,
        custom_metadata=message.custom_metadata if message.HasField("custom_metadata") else None,
        state=segment_state_from_pb(message.state, f"{field}.state"),
        broker_id=message.broker_id,
        reason=message.reason,
    )


def stored_segment_to_pb(stored: StoredSegment) -> pb.StoredSegment:
    """A manifest to its message."""
    return pb.StoredSegment(
        metadata=segment_metadata_to_pb(stored.metadata),
        object_keys=stored.object_keys,
        stored_bytes=stored.stored_bytes,
        original_bytes=stored.original_bytes,
        chunk_count=stored.chunk_count,
        codec=stored.codec,
        key_id=stored.key_id,
        sha256=stored.sha256,
        writer_version=stored.writer_version,
        custom_metadata=stored.custom_metadata,
    )


def stored_segment_from_pb(message: pb.StoredSegment, field: str = "segment") -> StoredSegment:
    """A manifest from its message.

    Raises:
        InvalidRequestError: no or malformed metadata.
    """
    metadata = required(message, "metadata", message.metadata, field)
    return StoredSegment(
        metadata=segment_metadata_from_pb(metadata, f"{field}.metadata"),
        object_keys=tuple(message.object_keys),
        stored_bytes=message.stored_bytes,
        original_bytes=message.original_bytes,
        chunk_count=message.chunk_count,
        codec=message.codec,
        key_id=message.key_id if message.HasField("key_id") else None,
        sha256=dict(message.sha256),
        writer_version=message.writer_version,
        custom_metadata=message.custom_metadata if message.HasField("custom_metadata") else None,
    )
