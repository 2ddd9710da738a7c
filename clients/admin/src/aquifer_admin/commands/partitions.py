"""`aquifer partitions`: what the managers do for each partition, and its five offsets."""

from enum import StrEnum
from typing import Annotated

import typer
from aquifer.manager.v1 import remote_log_manager_service_pb2 as manager_pb2
from aquifer.manager.v1.remote_log_manager_service_pb2_grpc import RemoteLogManagerServiceStub

from aquifer_admin import documents
from aquifer_admin.bounds import MAX_INT32, MAX_SECONDS
from aquifer_admin.cluster import find_partition
from aquifer_admin.command import command
from aquifer_admin.commands import pauses
from aquifer_admin.connection import Session
from aquifer_admin.managed import find_manager, read_partitions
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
    peer, state = await find_manager(session, where)
    row = documents.partition_state(state, peer.address)
    body = stacked(
        details("Partition", _DESCRIBED, row),
        *([table("Paused", pauses.PAUSE_COLUMNS, row["pauses"])] if row["pauses"] else []),
        table("Tasks", _TASK, row["tasks"]),
    )
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
    peer, _ = await find_manager(session, where)
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


pauses.add_to(app)
