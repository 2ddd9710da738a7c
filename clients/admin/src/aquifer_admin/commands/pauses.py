"""`aquifer partitions pause`, `resume` and `pauses`: what no copies and expirations are begun of."""

import getpass
import socket
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated

import typer
from aquifer.common.v1 import partition_pb2
from aquifer.manager.v1 import remote_log_manager_service_pb2 as manager_pb2
from aquifer.manager.v1.remote_log_manager_service_pb2_grpc import RemoteLogManagerServiceStub
from aquifer.metadata.v1 import remote_log_metadata_service_pb2 as facts_pb2
from aquifer.metadata.v1.remote_log_metadata_service_pb2_grpc import RemoteLogMetadataServiceStub
from aquifer_core.errors import AquiferError, InternalError, RemoteResourceNotFoundError
from aquifer_rpc.errors import is_unimplemented

from aquifer_admin import documents
from aquifer_admin.bounds import MAX_INT32
from aquifer_admin.cluster import find_topic, in_parallel, partitions_of
from aquifer_admin.command import command
from aquifer_admin.connection import Peer, Role, Session
from aquifer_admin.documents import Document
from aquifer_admin.managed import read_partitions
from aquifer_admin.render import Column, Report, as_time, stacked, table

_SWITCHED = (
    Column(key="topic", header="TOPIC"),
    Column(key="partition", header="PARTITION", justify="right"),
    Column(key="paused", header="PAUSED"),
    Column(key="manager", header="MANAGER"),
)
PAUSE_COLUMNS = (
    Column(key="topic", header="TOPIC"),
    Column(key="partition", header="PARTITION", justify="right"),
    Column(key="since_ms", header="SINCE", show=as_time),
    Column(key="paused_by", header="BY"),
    Column(key="reason", header="REASON", wraps=True),
    Column(key="topic_id", header="TOPIC ID"),
)
_UNTOLD = (
    Column(key="manager", header="MANAGER"),
    Column(key="error_reason", header="ERROR", bad=bool),
    Column(key="error", header="TEXT", wraps=True),
)
_IN_MEMORY = (
    "NOT DURABLE: the metadata service, or a manager, is of an older version. Only these managers know, until they restart or"
    " others take over; repeat it then, or upgrade them and repeat it"
)
_WHOLE_TOPICS = "without partition: the whole topic, also one that is made anew under the name"

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
OptionalPartition = Annotated[
    int | None,
    typer.Argument(metavar="[PARTITION]", min=0, max=MAX_INT32, help="Left out: the whole topic."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """What is paused or resumed."""

    paused: bool
    partitions: Sequence[partition_pb2.TopicIdPartition]
    topics: Sequence[str]
    reason: str = ""


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    command(app, "pause")(pause)
    command(app, "resume")(resume)
    command(app, "pauses")(list_pauses)


async def pause(
    session: Session,
    topic: TopicArgument,
    partition: OptionalPartition = None,
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why, for whoever finds it paused.")] = "",
) -> Report:
    """Stop copies and expirations until they are resumed, at all managers, whatever restarts."""
    change = await _named(session, topic, partition, paused=True, reason=reason)
    return await _switch(session, topic, partition, change)


async def resume(
    session: Session, topic: TopicArgument, partition: OptionalPartition = None
) -> Report:
    """End a pause; what was paused as a topic is resumed as a topic."""
    try:
        change = await _named(session, topic, partition, paused=False)
    except RemoteResourceNotFoundError:
        change = await _left_behind(session, topic, partition)
        if not (change.partitions or change.topics):
            raise
    return await _switch(session, topic, partition, change)


async def list_pauses(session: Session) -> Report:
    """List what is paused: since when, by whom and why."""
    rows = [documents.task_pause(each) for each in await _pauses(session)]
    return Report(
        document={"pauses": rows},
        body=table("Paused", PAUSE_COLUMNS, rows, caption=_WHOLE_TOPICS),
    )


async def _pauses(session: Session) -> list[partition_pb2.TaskPause]:
    peer = session.peer(Role.METADATA)
    stub = RemoteLogMetadataServiceStub(peer.channel)
    try:
        async with aclosing(
            peer.read(stub.ListTaskPauses, facts_pb2.ListTaskPausesRequest())
        ) as pages:
            return [pause async for page in pages for pause in page.pauses]
    except InternalError as error:
        known = error.__cause__
        if not isinstance(known, AquiferError) or not is_unimplemented(known):
            raise
        raise peer.located(
            InternalError(
                "this version of the service keeps no pauses; `aquifer partitions list` shows what managers hold in memory"
            )
        ) from error


async def _named(
    session: Session, topic: str, partition: int | None, *, paused: bool, reason: str = ""
) -> _Change:
    found = await find_topic(session.peer(Role.METADATA), topic)
    return _Change(
        paused=paused,
        partitions=partitions_of(found, partition) if partition is not None else (),
        topics=() if partition is not None else (topic,),
        reason=reason,
    )


async def _left_behind(session: Session, topic: str, partition: int | None) -> _Change:
    """Pauses of a topic that is not there any more."""
    left = [each for each in await _pauses(session) if each.topic == topic]
    return _Change(
        paused=False,
        partitions=[
            each.partition
            for each in left
            if each.HasField("partition") and partition in (None, each.partition.partition)
        ],
        topics=[
            each.topic for each in left if not each.HasField("partition") and partition is None
        ],
    )


async def _switch(session: Session, topic: str, partition: int | None, change: _Change) -> Report:
    """Tells every manager; what one of them has made durable reaches those that could not be told."""
    answers = await in_parallel(_told(peer, change) for peer in session.replicas(Role.MANAGER))
    failed = [(peer, error) for peer, _, error in answers if error is not None]
    reached = [(peer, durable) for peer, durable, error in answers if error is None]
    if not reached:
        raise failed[0][1]
    rows = [
        {key: row[key] for key in ("topic", "partition", "paused", "manager")}
        for row in await read_partitions(session, topic, [peer for peer, _ in reached])
        if partition in (None, row["partition"])
    ]
    durable = all(each for _, each in reached)
    untold: list[Document] = [
        {"manager": peer.address, "error_reason": error.reason.value, "error": error.message}
        for peer, error in failed
    ]
    # A partition of a paused topic stays paused until the topic is resumed: say what is, not what was asked for.
    done = not untold and all(row["paused"] is change.paused for row in rows)
    document: Document = {
        "topic": topic,
        "partition": partition,
        "paused": change.paused,
        "durable": durable,
        "partitions": rows,
        "untold": untold,
    }
    parts = [table("Tasks", _SWITCHED, rows)]
    if not durable:
        parts.append(_IN_MEMORY)
    if untold:
        parts.append(table("Not told", _UNTOLD, untold))
    return Report(document=document, body=stacked(*parts), exit_code=int(not done))


async def _told(peer: Peer, change: _Change) -> tuple[Peer, bool, AquiferError | None]:
    """A manager with whether metadata has it now, or with what kept it from being told."""
    stub = RemoteLogManagerServiceStub(peer.channel)
    try:
        if change.paused:
            wanted = manager_pb2.PauseTasksRequest(
                partitions=change.partitions,
                topics=change.topics,
                paused_by=_who(),
                reason=change.reason,
            )
            return peer, (await peer.ask(stub.PauseTasks, wanted)).durable, None
        unwanted = manager_pb2.ResumeTasksRequest(
            partitions=change.partitions, topics=change.topics
        )
        return peer, (await peer.ask(stub.ResumeTasks, unwanted)).durable, None
    except AquiferError as error:
        return peer, False, error


def _who() -> str:
    """Who runs the command, for people."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # no name for the user's number, as in some containers
        user = "unknown"
    return f"{user}@{socket.gethostname()}"[:200]
