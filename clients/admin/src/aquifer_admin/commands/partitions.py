"""`aquifer partitions`: what the managers do for each partition, and its five offsets."""

from collections.abc import Sequence
from contextlib import aclosing
from enum import StrEnum
from typing import Annotated

import typer
from aquifer.common.v1 import partition_pb2
from aquifer.manager.v1 import remote_log_manager_service_pb2 as manager_pb2
from aquifer.manager.v1.remote_log_manager_service_pb2_grpc import RemoteLogManagerServiceStub
from aquifer_core.errors import ErrorReason, RemoteResourceNotFoundError

from aquifer_admin import documents
from aquifer_admin.bounds import MAX_INT32, MAX_SECONDS
from aquifer_admin.cluster import find_partition, find_topic, in_parallel, partitions_of
from aquifer_admin.command import command
from aquifer_admin.connection import Peer, Role, Session
from aquifer_admin.documents import Document
from aquifer_admin.render import Column, Report, as_bytes, as_duration, details, stacked, table

app = typer.Typer(help="Tiering of partitions: offsets, lag, tasks.", no_args_is_help=True)

_OFFSETS = (
    Column(key="log_start_offset", header="Rx", justify="right"),
    Column(key="local_log_start_offset", header="Lx", justify="right"),
    Column(key="highest_remote_offset", header="Ry", justify="right"),
    Column(key="last_stable_offset", header="Ly", justify="right"),
    Column(key="log_end_offset", header="Lz", justify="right"),
)
_OFFSETS_CAPTION = "log start Rx, local start Lx, highest remote Ry, last stable Ly, log end Lz"
_LAG = (
    Column(key="copy_lag_bytes", header="LAG", show=as_bytes, justify="right"),
    Column(key="copy_lag_segments", header="SEGMENTS", justify="right"),
    Column(key="copy_lag_ms", header="AGE", show=as_duration, justify="right"),
)
_NEXT_RUN = Column(key="next_run_in_ms", header="NEXT RUN", show=as_duration, justify="right")
_PARTITION = (
    Column(key="topic", header="TOPIC"),
    Column(key="partition", header="PARTITION", justify="right"),
    Column(key="leader_broker_id", header="LEADER", justify="right"),
    Column(key="leader_epoch", header="EPOCH", justify="right"),
    *_OFFSETS,
    *_LAG,
    Column(key="paused", header="PAUSED", bad=bool),
    _NEXT_RUN,
    Column(key="last_error_reason", header="LAST ERROR", bad=bool),
)
_DESCRIBED = (
    *_PARTITION,
    Column(key="last_error", header="ERROR TEXT", wraps=True),
    Column(key="topic_id", header="TOPIC ID"),
    Column(key="manager", header="MANAGER"),
    Column(key="leader", header="MANAGES LEADER"),
    Column(key="copied_segments", header="COPIED SEGMENTS"),
    Column(key="copied_bytes", header="COPIED BYTES", show=as_bytes),
    Column(key="deleted_segments", header="DELETED SEGMENTS"),
)
_TASK = (
    Column(key="task", header="TASK"),
    Column(key="running", header="RUNNING"),
    _NEXT_RUN,
    Column(key="since_success_ms", header="SINCE SUCCESS", show=as_duration, justify="right"),
    Column(key="runs", header="RUNS", justify="right"),
    Column(key="consecutive_failures", header="FAILURES", justify="right", bad=bool),
    Column(key="last_error_reason", header="LAST ERROR", bad=bool),
    Column(key="last_error", header="TEXT", wraps=True),
)
_ACTION = (
    Column(key="action", header="ACTION"),
    Column(key="reason", header="REASON"),
    Column(key="segment_id", header="SEGMENT ID"),
    Column(key="start_offset", header="START", justify="right"),
    Column(key="end_offset", header="END", justify="right"),
    Column(key="size_bytes", header="SIZE", show=as_bytes, justify="right"),
)

_SWITCHED = (
    Column(key="topic", header="TOPIC"),
    Column(key="partition", header="PARTITION", justify="right"),
    Column(key="paused", header="PAUSED"),
    Column(key="manager", header="MANAGER"),
)

# A run copies or reads whole segments before it answers.
_RUN_TIMEOUT_S = 600.0


class TaskChoice(StrEnum):
    """Tasks that can be run by hand."""

    COPY = "copy"
    EXPIRATION = "expiration"
    FOLLOWER = "follower"
    SCRUB = "scrub"


TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
PartitionArgument = Annotated[int, typer.Argument(metavar="PARTITION", min=0, max=MAX_INT32)]
OptionalPartition = Annotated[
    int | None,
    typer.Argument(metavar="[PARTITION]", min=0, max=MAX_INT32, help="Left out: the whole topic."),
]


@command(app, "list")
async def list_partitions(
    session: Session,
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic.")] = None,
) -> Report:
    """List the partitions that the managers work for."""
    rows = await read_partitions(session, topic or "")
    return Report(
        document={"partitions": rows},
        body=table("Partitions", _PARTITION, rows, caption=_OFFSETS_CAPTION),
    )


@command(app, "describe")
async def describe(session: Session, topic: TopicArgument, partition: PartitionArgument) -> Report:
    """Show one partition with its tasks."""
    where = await find_partition(session, topic, partition)
    peer, state = await _find_manager(session, where)
    row = documents.partition_state(state, peer.address)
    body = stacked(details("Partition", _DESCRIBED, row), table("Tasks", _TASK, row["tasks"]))
    return Report(document={"partition": row}, body=body)


@command(app, "run-task")
async def run_task(
    session: Session,
    topic: TopicArgument,
    partition: PartitionArgument,
    task: Annotated[TaskChoice, typer.Argument(help="Which task.")],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done (expiration, scrub).")
    ] = False,
    run_timeout: Annotated[
        float,
        typer.Option(min=1, max=MAX_SECONDS, metavar="SECONDS", help="How long the run may take."),
    ] = _RUN_TIMEOUT_S,
) -> Report:
    """Run a task of a partition now and wait for it."""
    where = await find_partition(session, topic, partition)
    peer, _ = await _find_manager(session, where)
    stub = RemoteLogManagerServiceStub(peer.channel)
    request = manager_pb2.RunTaskRequest(
        topic_id_partition=where,
        type=manager_pb2.TaskType.Value(f"TASK_TYPE_{task.name}"),
        dry_run=dry_run,
    )
    answer = await peer.ask(stub.RunTask, request, timeout_s=run_timeout, once=True)
    rows = [documents.task_action(each) for each in answer.actions]
    document = {
        "topic": topic,
        "partition": partition,
        "task": task.value,
        "dry_run": dry_run,
        "actions": rows,
    }
    title = f"{'Would be done' if dry_run else 'Done'} by {task.value} of {topic}-{partition}"
    return Report(document=document, body=table(title, _ACTION, rows))


@command(app, "pause")
async def pause(
    session: Session, topic: TopicArgument, partition: OptionalPartition = None
) -> Report:
    """Stop copies and expirations until they are resumed."""
    return await _switch(session, topic, partition, paused=True)


@command(app, "resume")
async def resume(
    session: Session, topic: TopicArgument, partition: OptionalPartition = None
) -> Report:
    """End a pause; what was paused as a topic is resumed as a topic."""
    return await _switch(session, topic, partition, paused=False)


async def read_partitions(session: Session, topic: str) -> list[Document]:
    """State of all partitions of all managers, each partition once."""
    listings = await in_parallel(
        _read_listing(peer, topic) for peer in session.replicas(Role.MANAGER)
    )
    # A partition that moved may still be listed by its old manager; the one of the leader counts.
    best: dict[tuple[str, int], Document] = {}
    for row in (row for listing in listings for row in listing):
        key = (row["topic_id"], row["partition"])
        known = best.get(key)
        if known is None or _rank(row) > _rank(known):
            best[key] = row
    return sorted(best.values(), key=lambda row: (row["topic"], row["partition"]))


def _rank(row: Document) -> tuple[int, bool]:
    return (row["leader_epoch"], row["leader"])


async def _read_listing(peer: Peer, topic: str) -> list[Document]:
    stub = RemoteLogManagerServiceStub(peer.channel)
    request = manager_pb2.ListPartitionsRequest(topic=topic)
    async with aclosing(peer.read(stub.ListPartitions, request)) as pages:
        return [
            documents.partition_state(state, peer.address)
            async for page in pages
            for state in page.partitions
        ]


async def managers_of(
    session: Session, where: partition_pb2.TopicIdPartition
) -> list[tuple[Peer, manager_pb2.PartitionState]]:
    """The managers that know a partition, the one that works for its leader first."""
    known: list[tuple[Peer, manager_pb2.PartitionState]] = []
    request = manager_pb2.DescribePartitionRequest(topic_id_partition=where)
    for peer in session.replicas(Role.MANAGER):
        stub = RemoteLogManagerServiceStub(peer.channel)
        try:
            answer = await peer.ask(stub.DescribePartition, request)
        except RemoteResourceNotFoundError:
            continue
        known.append((peer, answer.partition))
    return sorted(known, key=lambda each: (each[1].leader_epoch, each[1].leader), reverse=True)


async def _find_manager(
    session: Session, where: partition_pb2.TopicIdPartition
) -> tuple[Peer, manager_pb2.PartitionState]:
    """The manager that works for the partition's leader, else one that knows the partition."""
    known = await managers_of(session, where)
    if not known:
        raise RemoteResourceNotFoundError(
            f"no manager works for {where.topic}-{where.partition}; is the topic tiered,"
            " and is its leader alive? See `aquifer status`",
            reason=ErrorReason.PARTITION_NOT_FOUND,
            metadata={"topicIdPartition": f"{where.topic_id}:{where.topic}-{where.partition}"},
        )
    return known[0]


async def _switch(session: Session, topic: str, partition: int | None, *, paused: bool) -> Report:
    found = await find_topic(session.peer(Role.METADATA), topic)
    partitions = partitions_of(found, partition) if partition is not None else []
    topics = [] if partitions else [topic]
    peers = session.replicas(Role.MANAGER)
    await in_parallel(_switch_at(peer, partitions, topics, paused) for peer in peers)
    rows = [
        {key: row[key] for key in ("topic", "partition", "paused", "manager")}
        for row in await read_partitions(session, topic)
        if partition in (None, row["partition"])
    ]
    # A partition of a paused topic stays paused until the topic is resumed: say what is, not what was asked for.
    reached = all(row["paused"] is paused for row in rows)
    document = {"topic": topic, "partition": partition, "paused": paused, "partitions": rows}
    return Report(
        document=document, body=table("Tasks", _SWITCHED, rows), exit_code=int(not reached)
    )


async def _switch_at(
    peer: Peer,
    partitions: Sequence[partition_pb2.TopicIdPartition],
    topics: Sequence[str],
    paused: bool,
) -> None:
    stub = RemoteLogManagerServiceStub(peer.channel)
    if paused:
        await peer.ask(
            stub.PauseTasks, manager_pb2.PauseTasksRequest(partitions=partitions, topics=topics)
        )
    else:
        await peer.ask(
            stub.ResumeTasks, manager_pb2.ResumeTasksRequest(partitions=partitions, topics=topics)
        )
