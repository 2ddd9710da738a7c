"""`aquifer metadata`: what the metadata service knows, made anew from the store or moved to and from Kafka's own topic."""

from collections import Counter
from typing import Annotated

import typer

from aquifer_admin.command import command
from aquifer_admin.commands import metadata_topic
from aquifer_admin.connection import Role, Session
from aquifer_admin.documents import Document
from aquifer_admin.rebuild_plan import Action, PartitionKey, PlannedSegment
from aquifer_admin.rebuilding import apply, plan, read_holdings
from aquifer_admin.render import Column, Report, as_bytes, progress_by_count, stacked, table

app = typer.Typer(
    help="Rebuild the metadata of remote segments, or move it from Kafka's own topic and back.",
    no_args_is_help=True,
)
metadata_topic.add_to(app)

_PARTITION = (
    Column(key="topic", header="TOPIC"),
    Column(key="topic_id", header="TOPIC ID"),
    Column(key="partition", header="PARTITION", justify="right"),
    Column(key="start_offset", header="START", justify="right"),
    Column(key="end_offset", header="END", justify="right"),
    Column(key="add", header="ADD", justify="right"),
    Column(key="finish", header="FINISH", justify="right"),
    Column(key="known", header="KNOWN", justify="right"),
    Column(key="superseded", header="SUPERSEDED", justify="right"),
    Column(key="add_bytes", header="BYTES TO ADD", show=as_bytes, justify="right"),
)
_REFUSED = (
    Column(key="segment_id", header="SEGMENT ID"),
    Column(key="error", header="ERROR", wraps=True, bad=bool),
)


@command(app, "rebuild")
async def rebuild(
    session: Session,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Only segments of topics with this name.")
    ] = None,
    write: Annotated[
        bool, typer.Option("--apply", help="Write; without it the command only says what it would.")
    ] = False,
) -> Report:
    """Make metadata know every segment that the store holds, from manifests alone: after the database was lost.

    Run it before brokers and managers start: until it is through, segments that it has begun look like copies to give up. Segments
    that metadata knows are left as they are. May be repeated. Exit code 1 when manifests are damaged or metadata refuses
    a segment; the others are done all the same.
    """
    metadata = session.peer(Role.METADATA)
    with progress_by_count() as progress:
        holdings = await read_holdings(session.peer(Role.STORAGE), topic, progress)
        planned = await plan(metadata, holdings.segments)
        refused = await apply(metadata, planned, progress) if write else {}
    rows = [_partition_row(key, segments) for key, segments in planned.items()]
    totals = Counter(str(each.action) for segments in planned.values() for each in segments)
    refusals = [{"segment_id": segment_id, "error": text} for segment_id, text in refused.items()]
    failed = bool(refusals) or holdings.damage is not None
    document: Document = {
        "ok": not failed,
        "applied": write,
        "stored_segments": len(holdings.segments),
        **{str(action): totals[action] for action in Action},
        "damage": holdings.damage,
        "refused": refusals,
        "partitions": rows,
    }
    title = "Rebuilt" if write else "To rebuild; nothing is written without --apply"
    body = stacked(
        table(title, _PARTITION, rows, caption=holdings.damage),
        *([table("Refused", _REFUSED, refusals)] if refusals else []),
    )
    return Report(document=document, body=body, exit_code=int(failed))


def _partition_row(key: PartitionKey, segments: list[PlannedSegment]) -> Document:
    topic, topic_id, partition = key
    counts = Counter(str(each.action) for each in segments)
    return {
        "topic": topic,
        "topic_id": topic_id,
        "partition": partition,
        "start_offset": min(each.metadata.start_offset for each in segments),
        "end_offset": max(each.metadata.end_offset for each in segments),
        **{str(action): counts[action] for action in Action},
        "add_bytes": sum(
            each.metadata.segment_size_bytes for each in segments if each.action is Action.ADD
        ),
    }
