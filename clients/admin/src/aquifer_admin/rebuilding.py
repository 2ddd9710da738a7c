"""Rebuilds the metadata of remote segments from what the store holds."""

import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from aquifer.common.v1 import partition_pb2, segment_pb2
from aquifer.metadata.v1 import remote_log_metadata_service_pb2 as facts_pb2
from aquifer.metadata.v1.remote_log_metadata_service_pb2_grpc import RemoteLogMetadataServiceStub
from aquifer.storage.v1 import remote_storage_service_pb2 as storage_pb2
from aquifer.storage.v1.remote_storage_service_pb2_grpc import RemoteStorageServiceStub
from aquifer_core.errors import CorruptDataError, InvalidRequestError, PreconditionError
from rich.progress import Progress

from aquifer_admin.cluster import in_parallel, read_segments
from aquifer_admin.connection import Peer
from aquifer_admin.rebuild_plan import (
    FINISHED,
    STARTED,
    Action,
    PartitionKey,
    PlannedSegment,
    by_partition,
    plan_partition,
)

_REASON = "rebuilt from the object store"
# Listing reads one manifest after the other.
_LISTING_S = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What the store holds, and what of it cannot be read."""

    segments: Sequence[segment_pb2.StoredSegment]
    damage: str | None


async def read_holdings(peer: Peer, topic: str | None, progress: Progress) -> Holdings:
    """Every segment of the store, or of one topic name; damaged manifests do not hide the others."""
    stub = RemoteStorageServiceStub(peer.channel)
    request = storage_pb2.ListStoredSegmentsRequest(prefix=f"{topic}-" if topic else "")
    bar = progress.add_task("reading manifests", total=None)
    found: list[segment_pb2.StoredSegment] = []
    damage = None
    answers = peer.read(stub.ListStoredSegments, request, timeout_s=_LISTING_S)
    try:
        async with aclosing(answers) as listed:
            async for answer in listed:
                where = answer.segment.metadata.segment_id.topic_id_partition
                if topic in (None, where.topic):
                    found.append(answer.segment)
                    progress.advance(bar)
    except CorruptDataError as error:
        damage = error.message
    progress.update(bar, total=len(found))
    return Holdings(segments=found, damage=damage)


async def plan(
    peer: Peer, segments: Sequence[segment_pb2.StoredSegment]
) -> dict[PartitionKey, list[PlannedSegment]]:
    """What to do with each stored segment, partition by partition."""
    stored = by_partition(segments)
    keys = sorted(stored)
    known = await in_parallel(read_segments(peer, _partition(key)) for key in keys)
    now_ms = time.time_ns() // 1_000_000
    return {
        key: plan_partition(stored[key], rows, now_ms)
        for key, rows in zip(keys, known, strict=True)
    }


async def apply(
    peer: Peer, planned: dict[PartitionKey, list[PlannedSegment]], progress: Progress
) -> dict[str, str]:
    """Writes what is missing; returns the refusals by segment id. May be repeated after it was interrupted."""
    missing = {key: list(_missing(segments)) for key, segments in planned.items()}
    bar = progress.add_task("writing metadata", total=sum(map(len, missing.values())))
    refused: dict[str, str] = {}

    async def write_partition(segments: Sequence[PlannedSegment]) -> None:
        for segment in segments:
            try:
                await _write(peer, segment)
            except (PreconditionError, InvalidRequestError) as error:
                refused[segment.metadata.segment_id.id] = error.message
            progress.advance(bar)

    await in_parallel(write_partition(segments) for segments in missing.values())
    return refused


def _missing(segments: Sequence[PlannedSegment]) -> Iterator[PlannedSegment]:
    return (each for each in segments if each.action in (Action.ADD, Action.FINISH))


async def _write(peer: Peer, segment: PlannedSegment) -> None:
    """As an importer: without a leader epoch, since nobody leads while metadata is rebuilt."""
    stub = RemoteLogMetadataServiceStub(peer.channel)
    metadata = segment.metadata
    if segment.action is Action.ADD:
        started = segment_pb2.RemoteLogSegmentMetadata()
        started.CopyFrom(metadata)
        started.state = STARTED
        started.ClearField("custom_metadata")
        request = facts_pb2.AddRemoteLogSegmentMetadataRequest(metadata=started)
        await peer.ask(stub.AddRemoteLogSegmentMetadata, request)
    stored = segment.stored
    update = segment_pb2.RemoteLogSegmentMetadataUpdate(
        segment_id=metadata.segment_id,
        event_timestamp_ms=metadata.event_timestamp_ms,
        custom_metadata=stored.custom_metadata if stored.HasField("custom_metadata") else None,
        state=FINISHED,
        broker_id=metadata.broker_id,
        reason=_REASON,
    )
    finish = facts_pb2.UpdateRemoteLogSegmentMetadataRequest(update=update)
    await peer.ask(stub.UpdateRemoteLogSegmentMetadata, finish)


def _partition(key: PartitionKey) -> partition_pb2.TopicIdPartition:
    topic, topic_id, number = key
    return partition_pb2.TopicIdPartition(topic=topic, topic_id=topic_id, partition=number)
