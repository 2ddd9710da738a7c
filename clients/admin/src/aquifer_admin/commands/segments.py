"""`aquifer segments`: the copies of segments, what the store holds of them, and whether it is intact."""

from typing import Annotated

import typer
from aquifer.common.v1 import segment_pb2
from aquifer.metadata.v1 import remote_log_metadata_service_pb2 as facts_pb2
from aquifer.metadata.v1.remote_log_metadata_service_pb2_grpc import RemoteLogMetadataServiceStub
from aquifer.storage.v1 import remote_storage_service_pb2 as storage_pb2
from aquifer.storage.v1.remote_storage_service_pb2_grpc import RemoteStorageServiceStub
from aquifer_core.errors import RemoteResourceNotFoundError

from aquifer_admin import documents
from aquifer_admin.bounds import MAX_INT32
from aquifer_admin.cluster import partitions_of, read_segments_of_all
from aquifer_admin.command import command
from aquifer_admin.connection import Role, Session
from aquifer_admin.documents import Document
from aquifer_admin.moments import moment_ms
from aquifer_admin.render import (
    Column,
    Report,
    as_bytes,
    as_time,
    details,
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
from aquifer_admin.verification import verify_segments
from aquifer_admin.warming import warm_segments

app = typer.Typer(
    help="List, describe, verify, rewrap and warm remote segments.", no_args_is_help=True
)

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
    return await verify_segments(session, chosen)


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
