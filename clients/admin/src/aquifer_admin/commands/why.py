"""`aquifer why`: the reason that something is still local, not yet deleted, or unreadable."""

from typing import Annotated

import typer
from aquifer.common.v1 import partition_pb2
from aquifer.manager.v1 import remote_log_manager_service_pb2 as manager_pb2
from aquifer.manager.v1.remote_log_manager_service_pb2_grpc import RemoteLogManagerServiceStub

from aquifer_admin import documents
from aquifer_admin.bounds import MAX_INT32, MAX_INT64
from aquifer_admin.cluster import find_topic, in_parallel, partitions_of
from aquifer_admin.command import command
from aquifer_admin.connection import Role, Session
from aquifer_admin.documents import Document
from aquifer_admin.managed import managers_of
from aquifer_admin.render import Column, Report, as_duration, table

_EXPLANATION = (
    Column(key="partition", header="PARTITION", justify="right"),
    Column(key="question", header="WHY"),
    Column(key="start_offset", header="START", justify="right"),
    Column(key="end_offset", header="END", justify="right"),
    Column(key="reason", header="REASON"),
    Column(key="for_ms", header="FOR", show=as_duration, justify="right"),
    Column(key="text", header="TEXT", wraps=True),
    Column(key="last_error_reason", header="LAST ERROR", bad=bool),
    Column(key="segment_id", header="SEGMENT ID"),
)


def add_to(app: typer.Typer) -> None:
    """Registers the command."""
    command(app, "why")(why)


async def why(
    session: Session,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")],
    partition: Annotated[
        int | None,
        typer.Argument(metavar="[PARTITION]", min=0, max=MAX_INT32, help="Left out: all of them."),
    ] = None,
    *,
    offset: Annotated[
        int | None, typer.Option(min=0, max=MAX_INT64, help="Explain the segments that hold it.")
    ] = None,
    segment: Annotated[
        str | None, typer.Option(metavar="ID", help="Explain this remote segment.")
    ] = None,
) -> Report:
    """Say why segments are still local, not yet deleted, or unreadable: those asked for, or what is most overdue."""
    if (offset is not None or segment is not None) and partition is None:
        raise typer.BadParameter("--offset and --segment need the PARTITION")
    if offset is not None and segment is not None:
        raise typer.BadParameter("give --offset or --segment, not both")
    found = await find_topic(session.peer(Role.METADATA), topic)
    answers = await in_parallel(
        _explain(session, where, offset, segment) for where in partitions_of(found, partition)
    )
    rows = [row for each in answers for row in each]
    document = {"topic": topic, "explanations": rows}
    return Report(document=document, body=table(f"Why, of {topic}", _EXPLANATION, rows))


async def _explain(
    session: Session,
    where: partition_pb2.TopicIdPartition,
    offset: int | None,
    segment: str | None,
) -> list[Document]:
    """Explanations of one partition by the manager of its leader, or by any when none has it."""
    known = await managers_of(session, where)
    peer = known[0][0] if known else session.replicas(Role.MANAGER)[0]
    stub = RemoteLogManagerServiceStub(peer.channel)
    request = manager_pb2.ExplainRequest(
        topic_id_partition=where, offset=offset, segment_id=segment
    )
    answer = await peer.ask(stub.Explain, request)
    return [explanation(where.partition, each) for each in answer.explanations]


def explanation(partition: int, answer: manager_pb2.Explanation) -> Document:
    """One answer."""
    question = documents.enum_name(manager_pb2.WhyQuestion, answer.question, "WHY_QUESTION_")
    return {
        "partition": partition,
        "question": question.lower(),
        "reason": documents.enum_name(manager_pb2.WhyReason, answer.reason, "WHY_REASON_"),
        "text": answer.text,
        "start_offset": answer.start_offset,
        "end_offset": answer.end_offset if answer.end_offset >= answer.start_offset else None,
        "segment_id": answer.segment_id if answer.HasField("segment_id") else None,
        "for_ms": answer.for_ms if answer.HasField("for_ms") else None,
        "last_error_reason": answer.last_error_reason or None,
        "last_error": answer.last_error or None,
    }
