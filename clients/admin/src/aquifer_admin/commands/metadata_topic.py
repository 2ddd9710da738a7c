"""`aquifer metadata import` and `export`: between Kafka's own metadata topic and the metadata service."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer
from aquifer_core.errors import RemoteResourceNotFoundError
from rich.progress import Progress

from aquifer_admin.bounds import MAX_REPLICAS
from aquifer_admin.command import command
from aquifer_admin.connection import Role, Session
from aquifer_admin.documents import Document
from aquifer_admin.metadata_topic.blocking import in_thread
from aquifer_admin.metadata_topic.highest import peaks_of_gone
from aquifer_admin.metadata_topic.moving import (
    Action,
    Folded,
    Move,
    PartitionKey,
    fold,
    partition_key,
    plan,
)
from aquifer_admin.metadata_topic.service import (
    deleted_segments,
    higher_peaks,
    known_segments,
    write_moves,
)
from aquifer_admin.metadata_topic.topic import MetadataTopic
from aquifer_admin.render import Column, Report, progress_by_count, stacked, table

_PARTITION = (
    Column(key="topic", header="TOPIC"),
    Column(key="topic_id", header="TOPIC ID"),
    Column(key="partition", header="PARTITION", justify="right"),
    *(Column(key=str(each), header=str(each).upper(), justify="right") for each in Action),
)
_REFUSED = (
    Column(key="segment_id", header="SEGMENT ID"),
    Column(key="error", header="ERROR", wraps=True, bad=bool),
)

BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap-server", metavar="HOST:PORT[,...]", help="Brokers of the Kafka cluster."
    ),
]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="KEY=VALUE",
        help="Of librdkafka, for TLS and SASL; may be given several times.",
    ),
]
TopicOption = Annotated[
    str | None, typer.Option("--topic", help="Only segments of topics with this name.")
]
ApplyOption = Annotated[
    bool, typer.Option("--apply", help="Write; without it the command only says what it would.")
]


def add_to(app: typer.Typer) -> None:
    """Add both commands to a group."""
    command(app, "import")(import_topic)
    command(app, "export")(export_topic)


async def import_topic(
    session: Session,
    bootstrap_server: BootstrapOption,
    *,
    kafka_property: PropertyOption = None,
    topic: TopicOption = None,
    write: ApplyOption = False,
) -> Report:
    """Make metadata know what `__remote_log_metadata` of a Kafka cluster says, before its brokers use the plugin for metadata.

    May be repeated: what is known is left, what was deleted meanwhile is removed. The highest offset of a leader epoch is kept even when
    all its segments are gone ("remember"), as far back as the topic still says it. Exit code 1 when metadata refuses a segment; the
    others are done all the same.
    """
    peer = session.peer(Role.METADATA)
    kafka = _topic(session, bootstrap_server, kafka_property)
    with progress_by_count() as progress:
        read = _of_topic(await _read(kafka, progress), topic)
        wanted = read.segments
        present = await known_segments(peer, {partition_key(each) for each in wanted.values()})
        unknown = [each for key, each in wanted.items() if key not in present]
        present |= await deleted_segments(peer, unknown)
        existing = {each[1:] for each in await in_thread(kafka.user_partitions)}
        gone = [each for each in peaks_of_gone(wanted, read.finished) if each.key[:2] in existing]
        peaks = await higher_peaks(peer, gone)
        planned = plan(wanted, present, peaks)
        bar = progress.add_task("writing metadata", total=_count(planned))
        refused = await write_moves(peer, planned, lambda: progress.advance(bar)) if write else {}
    return _report("import", planned, written=write, refused=refused)


async def export_topic(
    session: Session,
    bootstrap_server: BootstrapOption,
    *,
    kafka_property: PropertyOption = None,
    topic: TopicOption = None,
    replication_factor: Annotated[
        int,
        typer.Option(min=1, max=MAX_REPLICAS, help="Of the metadata topic when it has to be made."),
    ] = 3,
    write: ApplyOption = False,
) -> Report:
    """Write what metadata knows of the topics of a Kafka cluster into its `__remote_log_metadata`, before its brokers go back to it.

    Makes the topic, with 50 partitions, when there is none. May be repeated.
    """
    peer = session.peer(Role.METADATA)
    kafka = _topic(session, bootstrap_server, kafka_property)
    if write:
        await in_thread(kafka.make, replication_factor)
    with progress_by_count() as progress:
        partitions = await in_thread(kafka.user_partitions, topic)
        wanted = await known_segments(peer, partitions)
        present = _of_topic(await _read_if_made(kafka, progress), topic).segments
        gone = [each for key, each in present.items() if key not in wanted]
        planned = plan(wanted | await deleted_segments(peer, gone), present)
        if write:
            moves = [each for moves in planned.values() for each in moves]
            records = [record for move in moves for record in move.records()]
            bar = progress.add_task("writing records", total=len(records))
            await in_thread(
                kafka.write, records, lambda number: progress.update(bar, completed=number)
            )
    return _report("export", planned, written=write, refused={})


def _topic(session: Session, bootstrap: str, properties: Sequence[str] | None) -> MetadataTopic:
    given = {}
    for each in properties or ():
        key, separator, value = each.partition("=")
        if not separator:
            raise typer.BadParameter(f"{each!r} is no KEY=VALUE", param_hint="--property")
        given[key] = value
    return MetadataTopic({**given, "bootstrap.servers": bootstrap}, session.options.timeout_s)


async def _read(kafka: MetadataTopic, progress: Progress) -> Folded:
    bar = progress.add_task("reading the topic", total=None)
    records = await in_thread(kafka.read, lambda count: progress.update(bar, completed=count))
    return fold(records)


async def _read_if_made(kafka: MetadataTopic, progress: Progress) -> Folded:
    try:
        return await _read(kafka, progress)
    except RemoteResourceNotFoundError:
        return Folded(segments={}, finished=set())


def _of_topic(read: Folded, topic: str | None) -> Folded:
    segments = {
        key: each
        for key, each in read.segments.items()
        if topic in (None, each.segment_id.topic_id_partition.topic)
    }
    return Folded(segments=segments, finished=read.finished & segments.keys())


def _count(planned: Mapping[PartitionKey, Sequence[Move]]) -> int:
    return sum(move.action is not Action.KNOWN for moves in planned.values() for move in moves)


def _report(
    verb: str,
    planned: Mapping[PartitionKey, Sequence[Move]],
    *,
    written: bool,
    refused: Mapping[str, str],
) -> Report:
    rows = [_row(key, moves) for key, moves in sorted(planned.items())]
    refusals = [{"segment_id": each, "error": text} for each, text in refused.items()]
    document: Document = {
        "ok": not refusals,
        "applied": written,
        **{str(action): sum(row[str(action)] for row in rows) for action in Action},
        "refused": refusals,
        "partitions": rows,
    }
    title = (
        f"{verb.capitalize()}ed" if written else f"To {verb}; nothing is written without --apply"
    )
    parts = [table(title, _PARTITION, rows)]
    if refusals:
        parts.append(table("Refused", _REFUSED, refusals))
    return Report(document=document, body=stacked(*parts), exit_code=int(bool(refusals)))


def _row(key: PartitionKey, moves: Sequence[Move]) -> Document:
    topic, topic_id, partition = key
    counts = Counter(str(each.action) for each in moves)
    named = {"topic": topic, "topic_id": topic_id, "partition": partition}
    return {**named, **{str(action): counts[action] for action in Action}}
