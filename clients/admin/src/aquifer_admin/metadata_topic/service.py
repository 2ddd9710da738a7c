"""The metadata service as a keeper of segments: what it knows of partitions, and writing what it is to know."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from aquifer.common.v1 import partition_pb2
from aquifer.metadata.v1 import remote_log_metadata_service_pb2 as facts_pb2
from aquifer.metadata.v1.remote_log_metadata_service_pb2_grpc import RemoteLogMetadataServiceStub
from aquifer_core.errors import InvalidRequestError, PreconditionError

from aquifer_admin.cluster import in_parallel, read_segments_of_all
from aquifer_admin.connection import Peer
from aquifer_admin.metadata_topic.highest import Peak
from aquifer_admin.metadata_topic.moving import (
    DELETED,
    Action,
    Move,
    PartitionKey,
    SegmentKey,
    segment_key,
)
from aquifer_admin.metadata_topic.records import Segment, Update

_REASON = "imported from the metadata topic"


async def known_segments(
    peer: Peer, partitions: Iterable[PartitionKey]
) -> dict[SegmentKey, Segment]:
    """What metadata knows of partitions, deleted segments left out."""
    asked = [
        partition_pb2.TopicIdPartition(topic=topic, topic_id=topic_id, partition=number)
        for topic, topic_id, number in partitions
    ]
    listings = await read_segments_of_all(peer, asked)
    return {segment_key(each.segment_id): each for listing in listings for each in listing}


async def deleted_segments(peer: Peer, segments: Sequence[Segment]) -> dict[SegmentKey, Segment]:
    """Those of the segments that metadata knew and has deleted; each in that state."""
    stub = RemoteLogMetadataServiceStub(peer.channel)

    async def deleted(segment: Segment) -> Segment | None:
        request = facts_pb2.GetSegmentHistoryRequest(segment_id=segment.segment_id)
        events = (await peer.ask(stub.GetSegmentHistory, request)).events
        if not events or events[-1].to_state != DELETED:
            return None
        found = Segment()
        found.CopyFrom(segment)
        found.state = DELETED
        return found

    answers = await in_parallel(deleted(segment) for segment in segments)
    return {segment_key(each.segment_id): each for each in answers if each is not None}


async def higher_peaks(peer: Peer, peaks: Sequence[Peak]) -> set[SegmentKey]:
    """Segments that reached further in a leader epoch than metadata knows."""
    stub = RemoteLogMetadataServiceStub(peer.channel)

    async def is_higher(peak: Peak) -> bool:
        request = facts_pb2.GetHighestOffsetForEpochRequest(
            topic_id_partition=peak.segment.segment_id.topic_id_partition,
            leader_epoch=peak.leader_epoch,
        )
        answer = await peer.ask(stub.GetHighestOffsetForEpoch, request)
        return not answer.HasField("offset") or answer.offset < peak.highest_offset

    answers = await in_parallel(is_higher(each) for each in peaks)
    return {peak.key for peak, higher in zip(peaks, answers, strict=True) if higher}


async def write_moves(
    peer: Peer, planned: Mapping[PartitionKey, Sequence[Move]], done: Callable[[], None]
) -> dict[str, str]:
    """Tell metadata; returns the refusals by segment id. May be repeated after it was interrupted."""
    refused: dict[str, str] = {}

    async def write_partition(moves: Sequence[Move]) -> None:
        for move in moves:
            if move.action is Action.KNOWN:
                continue
            try:
                for record in move.records():
                    await _write(peer, record)
            except (PreconditionError, InvalidRequestError) as error:
                refused[move.segment.segment_id.id] = error.message
            done()

    await in_parallel(write_partition(moves) for moves in planned.values())
    return refused


async def _write(peer: Peer, record: Segment | Update) -> None:
    """As an importer: without a leader epoch."""
    stub = RemoteLogMetadataServiceStub(peer.channel)
    if isinstance(record, Segment):
        added = facts_pb2.AddRemoteLogSegmentMetadataRequest(metadata=record)
        await peer.ask(stub.AddRemoteLogSegmentMetadata, added)
        return
    record.reason = _REASON
    changed = facts_pb2.UpdateRemoteLogSegmentMetadataRequest(update=record)
    await peer.ask(stub.UpdateRemoteLogSegmentMetadata, changed)
