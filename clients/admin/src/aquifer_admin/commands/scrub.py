"""`aquifer scrub`: what metadata, the bucket and its bytes say of the same segments, and healing what can be healed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from aquifer.common.v1 import partition_pb2
from aquifer.manager.v1 import remote_log_manager_service_pb2 as manager_pb2
from aquifer.manager.v1.remote_log_manager_service_pb2_grpc import RemoteLogManagerServiceStub

from aquifer_admin import documents
from aquifer_admin.bounds import MAX_INT32, MAX_SECONDS
from aquifer_admin.cluster import find_topic, partitions_of
from aquifer_admin.command import command
from aquifer_admin.connection import Role, Session
from aquifer_admin.documents import Document
from aquifer_admin.in_turn import in_turn
from aquifer_admin.managed import managers_of
from aquifer_admin.render import Column, Report, as_bytes, stacked, table
from aquifer_admin.segment_lookup import deleted_partition

_FINDING = (
    Column(key="partition", header="PARTITION", justify="right"),
    Column(key="action", header="FINDING", bad=bool),
    Column(key="reason", header="REASON"),
    Column(key="segment_id", header="SEGMENT ID"),
    Column(key="start_offset", header="START", justify="right"),
    Column(key="end_offset", header="END", justify="right"),
    Column(key="size_bytes", header="SIZE", show=as_bytes, justify="right"),
    Column(key="remedy", header="REMEDY"),
    Column(key="healed", header="HEALED"),
    Column(key="detail", header="DETAIL", wraps=True),
)
_ERROR = (
    Column(key="partition", header="PARTITION", justify="right"),
    Column(key="error_reason", header="ERROR", bad=bool),
    Column(key="error", header="TEXT", wraps=True),
)
_RUN_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Findings of one partition, and whether there are more than these."""

    partition: int
    findings: list[Document]
    more: bool


def add_to(app: typer.Typer) -> None:
    """Registers the command."""
    command(app, "scrub")(scrub)


async def scrub(
    session: Session,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")],
    partition: Annotated[
        int | None,
        typer.Argument(metavar="[PARTITION]", min=0, max=MAX_INT32, help="Left out: all of them."),
    ] = None,
    *,
    heal: Annotated[
        bool,
        typer.Option(
            "--heal", help="Remove proven orphans; copy missing segments again from a broker."
        ),
    ] = False,
    shallow: Annotated[
        bool, typer.Option("--shallow", help="Look at existence only, read no data.")
    ] = False,
    topic_id: Annotated[
        str | None, typer.Option(help="Of a topic that was deleted; with PARTITION.")
    ] = None,
    run_timeout: Annotated[
        float,
        typer.Option(
            min=1, max=MAX_SECONDS, metavar="SECONDS", help="How long one partition may take."
        ),
    ] = _RUN_TIMEOUT_S,
) -> Report:
    """Find segments that are missing, extra or corrupt; change nothing without --heal. Exit code 1 when something is left."""
    if topic_id is None:
        found = await find_topic(session.peer(Role.METADATA), topic)
        partitions = partitions_of(found, partition)
    else:
        partitions = [deleted_partition(topic, topic_id, partition)]
    found_in_each, failed = await in_turn(
        partitions,
        lambda where: _scrub(session, where, heal=heal, shallow=shallow, timeout_s=run_timeout),
    )
    rows = [row for found_in_one in found_in_each for row in found_in_one.findings]
    more = [found_in_one.partition for found_in_one in found_in_each if found_in_one.more]
    errors: list[Document] = [
        {
            "partition": where.partition,
            "error_reason": error.reason.value,
            "error": error.message,
        }
        for where, error in failed
    ]
    ok = not errors and not more and all(row["healed"] for row in rows)
    document = {
        "topic": topic,
        "heal": heal,
        "ok": ok,
        "more": more,
        "findings": rows,
        "errors": errors,
    }
    body = table(f"Findings in {topic}", _FINDING, rows, caption=_left(more))
    if errors:
        body = stacked(body, table("Not scrubbed to the end", _ERROR, errors))
    return Report(document=document, body=body, exit_code=int(not ok))


async def _scrub(
    session: Session,
    where: partition_pb2.TopicIdPartition,
    *,
    heal: bool,
    shallow: bool,
    timeout_s: float,
) -> _Found:
    """Scrubs one partition at the manager of its leader, or at any when none has it."""
    known = await managers_of(session, where)
    peer = known[0][0] if known else session.replicas(Role.MANAGER)[0]
    stub = RemoteLogManagerServiceStub(peer.channel)
    request = manager_pb2.RunTaskRequest(
        topic_id_partition=where, type=manager_pb2.TASK_TYPE_SCRUB, heal=heal, shallow=shallow
    )
    answer = await peer.ask(stub.RunTask, request, timeout_s=timeout_s, once=True)
    return _Found(
        partition=where.partition,
        findings=[
            {"partition": where.partition, **documents.task_action(each)} for each in answer.actions
        ],
        more=answer.more,
    )


def _left(partitions: Sequence[int]) -> str | None:
    """What is to be done about partitions with more findings than one answer holds."""
    if not partitions:
        return None
    numbers = ", ".join(map(str, partitions))
    return f"partition {numbers}: there is more; heal these findings, then repeat it"
