"""`aquifer topics`: what topics there are, where they lie, how much of them is remote."""

import signal
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer
from aquifer.common.v1 import segment_pb2
from aquifer.metadata.v1 import cluster_metadata_service_pb2 as cluster_pb2
from aquifer.metadata.v1.cluster_metadata_service_pb2_grpc import ClusterMetadataServiceStub
from aquifer_core.errors import AquiferError

from aquifer_admin import documents
from aquifer_admin.bounds import MAX_INT32, MAX_REPLICAS
from aquifer_admin.cluster import find_topic, partitions_of, read_segments_of_all, read_snapshot
from aquifer_admin.command import command
from aquifer_admin.connection import Peer, Role, Session
from aquifer_admin.documents import REMOTE_STORAGE_ENABLE, Document
from aquifer_admin.render import Column, Report, as_bytes, details, stacked, table

app = typer.Typer(help="List, describe, create, change and delete topics.", no_args_is_help=True)

_SIZES = (
    Column(key="remote_segments", header="REMOTE SEGMENTS", justify="right"),
    Column(key="remote_bytes", header="REMOTE BYTES", show=as_bytes, justify="right"),
)
_TOPIC = (
    Column(key="topic", header="TOPIC"),
    Column(key="topic_id", header="TOPIC ID"),
    Column(key="partition_count", header="PARTITIONS", justify="right"),
    Column(key="replication_factor", header="REPLICAS", justify="right"),
    Column(key="leaderless_partitions", header="LEADERLESS", justify="right", bad=bool),
    Column(key="tiered", header="TIERED"),
    *_SIZES,
)
_PARTITION = (
    Column(key="partition", header="PARTITION", justify="right"),
    Column(key="leader", header="LEADER", justify="right", bad=lambda leader: leader is None),
    Column(key="leader_epoch", header="EPOCH", justify="right"),
    Column(key="replicas", header="REPLICAS"),
    Column(key="isr", header="ISR"),
    *_SIZES,
)
_CONFIGS = Column(key="configs", header="SETTINGS")
_OUTCOME = (
    Column(key="topic", header="TOPIC"),
    Column(key="topic_id", header="TOPIC ID"),
    Column(key="error_reason", header="ERROR", bad=bool),
    Column(key="error", header="TEXT", wraps=True),
)
_OPERATIONS = {
    "set": cluster_pb2.CONFIG_OPERATION_SET,
    "append": cluster_pb2.CONFIG_OPERATION_APPEND,
    "subtract": cluster_pb2.CONFIG_OPERATION_SUBTRACT,
}

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
CheckOnly = Annotated[
    bool, typer.Option("--validate-only", help="Check the request, change nothing.")
]


@command(app, "list")
async def list_topics(
    session: Session,
    sizes: Annotated[
        bool, typer.Option("--sizes", help="Count remote segments and bytes; reads every listing.")
    ] = False,
) -> Report:
    """List all topics."""
    peer = session.peer(Role.METADATA)
    topics = sorted((await read_snapshot(peer)).topics, key=lambda each: each.name)
    rows = [documents.topic(each) for each in topics]
    if sizes:
        for topic, row in zip(topics, rows, strict=True):
            listings = await read_segments_of_all(peer, partitions_of(topic))
            _set_sizes(row, [segment for listing in listings for segment in listing])
    shown = _TOPIC if sizes else _TOPIC[: -len(_SIZES)]
    return Report(document={"topics": rows}, body=table("Topics", shown, rows))


@command(app, "describe")
async def describe(session: Session, topic: TopicArgument) -> Report:
    """Show a topic: settings, leaders, and what of each partition is remote."""
    peer = session.peer(Role.METADATA)
    found = await find_topic(peer, topic)
    row = documents.topic(found)
    ordered = sorted(found.partitions, key=lambda each: each.partition)
    partitions = [documents.topic_partition(each) for each in ordered]
    listings = await read_segments_of_all(peer, partitions_of(found))
    for partition, listing in zip(partitions, listings, strict=True):
        _set_sizes(partition, listing)
    _set_sizes(row, [segment for listing in listings for segment in listing])
    body = stacked(
        details("Topic", (*_TOPIC, _CONFIGS), row), table("Partitions", _PARTITION, partitions)
    )
    return Report(document={"topic": {**row, "partitions": partitions}}, body=body)


@command(app, "create")
async def create(
    session: Session,
    topic: TopicArgument,
    *,
    partitions: Annotated[
        int, typer.Option(min=-1, max=MAX_INT32, help="Partitions; -1: the cluster's default.")
    ] = -1,
    replication_factor: Annotated[
        int, typer.Option(min=-1, max=MAX_REPLICAS, help="Replicas; -1: the default.")
    ] = -1,
    config: Annotated[
        list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="A setting.")
    ] = None,
    tiered: Annotated[
        bool, typer.Option("--tiered", help=f"Short for --config {REMOTE_STORAGE_ENABLE}=true.")
    ] = False,
    topic_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="The id it had: takes a deletion back that has not begun, or attaches remote segments that a rebuild found.",
        ),
    ] = None,
    validate_only: CheckOnly = False,
) -> Report:
    """Create a topic."""
    configs = dict(_pair("--config", text) for text in config or ())
    if tiered:
        configs[REMOTE_STORAGE_ENABLE] = "true"
    peer = session.peer(Role.METADATA)
    stub = ClusterMetadataServiceStub(peer.channel)
    request = cluster_pb2.CreateTopicsRequest(
        topics=[
            cluster_pb2.NewTopic(
                name=topic,
                num_partitions=partitions,
                replication_factor=replication_factor,
                configs=configs,
                topic_id=topic_id,
            )
        ],
        validate_only=validate_only,
    )
    answer = await peer.ask(stub.CreateTopics, request, once=True)
    return _outcomes("Would be created" if validate_only else "Created", answer.results)


@command(app, "delete")
async def delete(
    session: Session,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names of topics.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> Report:
    """Delete topics with their remote data."""
    if not yes:
        _confirm(f"Delete {', '.join(topics)} with all remote data?")
    peer = session.peer(Role.METADATA)
    stub = ClusterMetadataServiceStub(peer.channel)
    request = cluster_pb2.DeleteTopicsRequest(names=topics)
    answer = await peer.ask(stub.DeleteTopics, request, once=True)
    return _outcomes("Deleted", answer.results)


@command(app, "alter")
async def alter(
    session: Session,
    topic: TopicArgument,
    *,
    assign: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a setting.")
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="KEY", help="Back to the default.")
    ] = None,
    append: Annotated[
        list[str] | None, typer.Option("--append", metavar="KEY=VALUE", help="Add to a list.")
    ] = None,
    subtract: Annotated[
        list[str] | None,
        typer.Option("--subtract", metavar="KEY=VALUE", help="Remove from a list."),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", min=1, max=MAX_INT32, help="Number of partitions afterwards."),
    ] = None,
    validate_only: CheckOnly = False,
) -> Report:
    """Change settings of a topic, or add partitions."""
    changes = [
        *_changes("set", assign),
        *_changes("append", append),
        *_changes("subtract", subtract),
        *(
            cluster_pb2.ConfigChange(key=key, operation=cluster_pb2.CONFIG_OPERATION_DELETE)
            for key in unset or ()
        ),
    ]
    if not changes and partitions is None:
        raise typer.BadParameter(
            "nothing to change; give --set, --unset, --append, --subtract or --partitions"
        )
    peer = session.peer(Role.METADATA)
    if partitions is None:
        return await _set_configs(peer, topic, changes, validate_only)
    if changes and not validate_only:
        # New partitions cannot be taken back: they are not made when the settings will be refused.
        await _set_configs(peer, topic, changes, validate_only=True)
    extended = await _add_partitions(peer, topic, partitions, validate_only)
    if extended.exit_code or not changes:
        return extended
    try:
        changed = await _set_configs(peer, topic, changes, validate_only)
    except AquiferError as error:
        text = f"the partitions were added, the settings were not changed: {error.message}"
        raise type(error)(text, reason=error.reason, metadata=error.metadata) from error
    return Report(
        document={**changed.document, **extended.document},
        body=stacked(extended.body, changed.body),
    )


async def _set_configs(
    peer: Peer, topic: str, changes: Sequence[cluster_pb2.ConfigChange], validate_only: bool
) -> Report:
    stub = ClusterMetadataServiceStub(peer.channel)
    request = cluster_pb2.AlterConfigsRequest(
        resource_type=cluster_pb2.CONFIG_RESOURCE_TYPE_TOPIC,
        resource_name=topic,
        changes=changes,
        validate_only=validate_only,
    )
    answer = await peer.ask(stub.AlterConfigs, request)
    row = {"topic": topic, "configs": dict(sorted(answer.configs.items()))}
    columns = (Column(key="topic", header="TOPIC"), _CONFIGS)
    return Report(document=row, body=details("Settings", columns, row))


async def _add_partitions(peer: Peer, topic: str, total: int, validate_only: bool) -> Report:
    stub = ClusterMetadataServiceStub(peer.channel)
    request = cluster_pb2.CreatePartitionsRequest(
        topics=[cluster_pb2.NewPartitions(name=topic, total_count=total)],
        validate_only=validate_only,
    )
    answer = await peer.ask(stub.CreatePartitions, request, once=True)
    return _outcomes("Would be extended" if validate_only else "Extended", answer.results)


def _outcomes(title: str, results: Iterable[cluster_pb2.TopicResult]) -> Report:
    rows = [documents.topic_outcome(result) for result in results]
    failed = any(row["error_reason"] for row in rows)
    return Report(
        document={"topics": rows}, body=table(title, _OUTCOME, rows), exit_code=int(failed)
    )


def _set_sizes(row: Document, segments: Sequence[segment_pb2.RemoteLogSegmentMetadata]) -> None:
    row["remote_segments"], row["remote_bytes"] = documents.remote_totals(segments)


def _changes(operation: str, texts: Sequence[str] | None) -> list[cluster_pb2.ConfigChange]:
    pairs = [_pair(f"--{operation}", text) for text in texts or ()]
    return [
        cluster_pb2.ConfigChange(key=key, value=value, operation=_OPERATIONS[operation])
        for key, value in pairs
    ]


def _pair(option: str, text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not (found and key.strip()):
        raise typer.BadParameter(f"{option} {text!r} has no value; give {option} KEY=VALUE")
    return key.strip(), value


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise typer.BadParameter("nobody is there to confirm; give --yes")
    # The event loop would take an interrupt for later, and nothing happen until the question is answered.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        typer.confirm(question, abort=True, err=True)
    finally:
        signal.signal(signal.SIGINT, before)
