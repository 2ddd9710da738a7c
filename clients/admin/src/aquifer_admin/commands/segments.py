"""`aquifer segments`: the copies of segments, what the store holds of them, and whether it is intact."""

from contextlib import aclosing
from typing import Annotated

import typer
from aquifer.common.v1 import segment_pb2
from aquifer.metadata.v1 import remote_log_metadata_service_pb2 as facts_pb2
from aquifer.metadata.v1.remote_log_metadata_service_pb2_grpc import RemoteLogMetadataServiceStub
from aquifer.storage.v1 import remote_storage_service_pb2 as storage_pb2
from aquifer.storage.v1.remote_storage_service_pb2_grpc import RemoteStorageServiceStub
from aquifer_core.errors import RemoteResourceNotFoundError
from rich.progress import Progress, TaskID

from aquifer_admin import documents
from aquifer_admin.bounds import MAX_INT32
from aquifer_admin.cluster import partitions_of, read_segments_of_all
from aquifer_admin.command import command
from aquifer_admin.connection import Peer, Role, Session
from aquifer_admin.documents import Document
from aquifer_admin.moments import moment_ms
from aquifer_admin.render import (
    Column,
    Report,
    as_bytes,
    as_time,
    details,
    progress_by_bytes,
    stacked,
    table,
)
from aquifer_admin.rewrapping import rewrap_segments
from aquifer_admin.segment_lookup import (
    FINISHED,
    check_id,
    deleted_partition,
    find_segment,
    finished_segments,
    partitions_to_search,
    unknown_segment,
)
from aquifer_admin.topic_lookup import locate_topic
from aquifer_admin.warming import warm_segments

app = typer.Typer(
    help="List, describe, verify, rewrap and warm remote segments.", no_args_is_help=True
)

# A verification reads everything back: it gets the time that this rate needs on top of --timeout.
_SLOWEST_BYTES_PER_SECOND = 1024 * 1024

_EPOCHS = Column(
    key="leader_epochs",
    header="EPOCHS",
    show=lambda epochs: " ".join(f"{each['epoch']}@{each['start_offset']}" for each in epochs),
)
_SEGMENT = (
    Column(key="segment_id", header="SEGMENT ID"),
    Column(key="partition", header="PARTITION", justify="right"),
    Column(key="start_offset", header="START", justify="right"),
    Column(key="end_offset", header="END", justify="right"),
    Column(key="size_bytes", header="SIZE", show=as_bytes, justify="right"),
    Column(key="state", header="STATE"),
    Column(key="max_timestamp_ms", header="NEWEST RECORD", show=as_time),
    Column(key="broker_id", header="BROKER", justify="right"),
    _EPOCHS,
)
_DESCRIBED = (
    Column(key="topic", header="TOPIC"),
    Column(key="topic_id", header="TOPIC ID"),
    *_SEGMENT,
    Column(key="event_timestamp_ms", header="CHANGED", show=as_time),
    Column(key="txn_index_empty", header="NO ABORTED TRANSACTION"),
)
_STORED = (
    Column(key="object_keys", header="OBJECTS", show="\n".join),
    Column(key="stored_bytes", header="STORED", show=as_bytes),
    Column(key="original_bytes", header="ORIGINAL", show=as_bytes),
    Column(key="chunk_count", header="CHUNKS"),
    Column(key="codec", header="CODEC"),
    Column(key="key_id", header="KEY ID"),
    Column(
        key="sha256",
        header="SHA-256",
        show=lambda digests: "\n".join(f"{digest} {part}" for part, digest in digests.items()),
    ),
    Column(key="writer_version", header="WRITER"),
)
_EVENT = (
    Column(key="timestamp_ms", header="TIME", show=as_time),
    Column(key="from_state", header="FROM"),
    Column(key="to_state", header="TO"),
    Column(key="broker_id", header="BROKER", justify="right"),
    Column(key="leader_epoch", header="EPOCH", justify="right"),
    Column(key="reason", header="REASON", wraps=True),
    Column(key="trace_id", header="TRACE"),
)
_VERIFIED = (
    Column(key="segment_id", header="SEGMENT ID"),
    Column(key="topic", header="TOPIC"),
    Column(key="partition", header="PARTITION", justify="right"),
    Column(key="start_offset", header="START", justify="right"),
    Column(key="verified_bytes", header="VERIFIED", show=as_bytes, justify="right"),
    Column(
        key="findings",
        header="FINDINGS",
        show=lambda findings: "\n".join(_finding_line(each) for each in findings) or "intact",
        wraps=True,
        bad=bool,
    ),
)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the copy, 22 characters.")]
TopicOption = Annotated[
    str | None, typer.Option("--topic", help="Only this topic; makes looking for an id quick.")
]
PartitionOption = Annotated[
    int | None, typer.Option("--partition", min=0, max=MAX_INT32, help="Only this partition.")
]


@command(app, "list")
async def list_segments(
    session: Session,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")],
    partition: PartitionOption = None,
    at_ms: Annotated[
        int | None,
        typer.Option(
            "--at", metavar="TIME", parser=moment_ms, help="As they were then, from the history."
        ),
    ] = None,
) -> Report:
    """List the remote segments of a topic, whatever their state; with --at as they were at a past time."""
    peer = session.peer(Role.METADATA)
    found = await locate_topic(session, topic)
    listings = await read_segments_of_all(peer, partitions_of(found, partition), at_ms)
    rows = [documents.segment(each) for listing in listings for each in listing]
    document = {"topic": topic, "topic_id": found.topic_id, "segments": rows}
    return Report(document=document, body=table(f"Segments of {topic}", _SEGMENT, rows))


@command(app, "describe")
async def describe(
    session: Session,
    segment_id: IdArgument,
    topic: TopicOption = None,
    partition: PartitionOption = None,
) -> Report:
    """Show what metadata and the store's manifest say of one segment."""
    metadata = await find_segment(session, segment_id, topic, partition)
    peer = session.peer(Role.STORAGE)
    stub = RemoteStorageServiceStub(peer.channel)
    row = documents.segment(metadata)
    stored: Document | None = None
    try:
        request = storage_pb2.DescribeSegmentRequest(metadata=metadata)
        answer = await peer.ask(stub.DescribeSegment, request)
        stored = documents.stored_segment(answer.segment)
    except RemoteResourceNotFoundError:
        # A fact, not a failure to look: metadata and store disagree, or the copy is not complete.
        stored = None
    missing = stored is None and metadata.state == FINISHED
    body = stacked(
        details("Segment", _DESCRIBED, row),
        table("Stored", _STORED, []) if stored is None else details("Stored", _STORED, stored),
    )
    return Report(document={"segment": row, "stored": stored}, body=body, exit_code=int(missing))


@command(app, "history")
async def history(
    session: Session,
    segment_id: IdArgument,
    *,
    topic: TopicOption = None,
    topic_id: Annotated[
        str | None,
        typer.Option(help="Of a topic that was deleted; with --topic and --partition."),
    ] = None,
    partition: PartitionOption = None,
) -> Report:
    """Show every state change of a segment, also after it is gone."""
    check_id(segment_id)
    peer = session.peer(Role.METADATA)
    stub = RemoteLogMetadataServiceStub(peer.channel)
    searched = (
        await partitions_to_search(session, topic, partition)
        if topic_id is None
        else [deleted_partition(topic, topic_id, partition)]
    )
    for where in searched:
        named = segment_pb2.RemoteLogSegmentId(topic_id_partition=where, id=segment_id)
        request = facts_pb2.GetSegmentHistoryRequest(segment_id=named)
        events = (await peer.ask(stub.GetSegmentHistory, request)).events
        if events:
            rows = [documents.segment_event(each) for each in events]
            document = {
                "segment_id": segment_id,
                "topic": where.topic,
                "partition": where.partition,
                "events": rows,
            }
            return Report(document=document, body=table(f"History of {segment_id}", _EVENT, rows))
    raise unknown_segment(segment_id)


@command(app, "verify")
async def verify(
    session: Session,
    segment_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID...]", help="Ids of copies.")
    ] = None,
    topic: TopicOption = None,
    partition: PartitionOption = None,
) -> Report:
    """Read segments back from the store and check every checksum: those named, or all finished ones of a topic."""
    if not segment_ids and topic is None:
        raise typer.BadParameter("nothing to verify; give ids, or --topic for all of its segments")
    chosen = (
        [await find_segment(session, each, topic, partition) for each in segment_ids]
        if segment_ids
        else await finished_segments(session, str(topic), partition)
    )
    peer = session.peer(Role.STORAGE)
    with progress_by_bytes() as progress:
        bar = progress.add_task("verifying", total=_total_bytes(chosen))
        rows = [await _verify(peer, metadata, progress, bar) for metadata in chosen]
    damaged = [row for row in rows if row["findings"]]
    document = {
        "ok": not damaged,
        "verified_bytes": sum(row["verified_bytes"] for row in rows),
        "segments": rows,
    }
    return Report(
        document=document, body=table("Verified", _VERIFIED, rows), exit_code=int(bool(damaged))
    )


@command(app, "rewrap")
async def rewrap(
    session: Session,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")],
    partition: PartitionOption = None,
) -> Report:
    """Wrap the data keys of a topic's segments with the active key; no data moves. Needed before an old key is retired."""
    return await rewrap_segments(session, await finished_segments(session, topic, partition))


@command(app, "warm")
async def warm(
    session: Session,
    segment_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of copies.")],
    *,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    start_position: Annotated[
        int, typer.Option(min=0, max=MAX_INT32, help="First position in the `.log` file.")
    ] = 0,
    end_position: Annotated[
        int | None,
        typer.Option(min=0, max=MAX_INT32, help="Last position; the end when not given."),
    ] = None,
) -> Report:
    """Load segments into the caches of the storage service, as far as there is room, before somebody reads them."""
    chosen = [await find_segment(session, each, topic, partition) for each in segment_ids]
    return await warm_segments(session, chosen, start_position, end_position)


async def _verify(
    peer: Peer, metadata: segment_pb2.RemoteLogSegmentMetadata, progress: Progress, bar: TaskID
) -> Document:
    """Verifies one segment; a segment that the store lacks is a finding."""
    stub = RemoteStorageServiceStub(peer.channel)
    request = storage_pb2.VerifySegmentRequest(metadata=metadata)
    budget_s = peer.timeout_s + metadata.segment_size_bytes / _SLOWEST_BYTES_PER_SECOND
    findings: list[Document] = []
    verified, announced = 0, metadata.segment_size_bytes
    try:
        async with aclosing(peer.read(stub.VerifySegment, request, timeout_s=budget_s)) as answers:
            async for answer in answers:
                _grow(progress, bar, answer.total_bytes - announced)
                announced = answer.total_bytes
                progress.advance(bar, answer.verified_bytes - verified)
                verified = answer.verified_bytes
                findings.extend(documents.finding(each) for each in answer.findings)
    except RemoteResourceNotFoundError as error:
        text = error.message
        findings.append({"part": "manifest", "chunk": None, "position": None, "message": text})
    return {
        **documents.segment(metadata),
        "verified_bytes": verified,
        "findings": findings,
    }


def _grow(progress: Progress, bar: TaskID, bytes_more: int) -> None:
    """Corrects the expected total: stored bytes differ from the original ones."""
    total = progress.tasks[bar].total or 0
    progress.update(bar, total=total + bytes_more)


def _total_bytes(segments: list[segment_pb2.RemoteLogSegmentMetadata]) -> int:
    return sum(each.segment_size_bytes for each in segments)


def _finding_line(found: Document) -> str:
    chunk = "" if found["chunk"] is None else f" chunk {found['chunk']}"
    position = "" if found["position"] is None else f" at {found['position']}"
    return f"{found['part']}{chunk}{position}: {found['message']}"
