"""Reads segments back from the store and checks every checksum."""

from collections.abc import Sequence
from contextlib import aclosing

from aquifer.common.v1 import segment_pb2
from aquifer.storage.v1 import remote_storage_service_pb2 as storage_pb2
from aquifer.storage.v1.remote_storage_service_pb2_grpc import RemoteStorageServiceStub
from aquifer_core.errors import CorruptDataError, PreconditionError, RemoteResourceNotFoundError
from rich.progress import Progress, TaskID

from aquifer_admin import documents
from aquifer_admin.connection import Peer, Role, Session
from aquifer_admin.documents import Document
from aquifer_admin.each_segment import each_segment
from aquifer_admin.render import Column, Report, as_bytes, progress_by_bytes, table

# A verification reads everything back: it gets the time that this rate needs on top of --timeout.
_SLOWEST_BYTES_PER_SECOND = 1024 * 1024

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


async def verify_segments(
    session: Session, segments: Sequence[segment_pb2.RemoteLogSegmentMetadata]
) -> Report:
    """Verify one segment after the other, with a progress bar; what cannot be verified now is told with the findings of the others."""
    peer = session.peer(Role.STORAGE)
    with progress_by_bytes() as progress:
        bar = progress.add_task("verifying", total=_total_bytes(segments))
        outcomes = await each_segment(
            session,
            segments,
            lambda each: _verify(peer, each, progress, bar),
            is_bad=lambda row: bool(row["findings"]),
        )
    rows = outcomes.rows
    ok = not outcomes.errors and not any(row["findings"] for row in rows)
    document: Document = {
        "ok": ok,
        "verified_bytes": sum(row["verified_bytes"] for row in rows),
        **outcomes.document(),
    }
    body = outcomes.below(table("Verified", _VERIFIED, rows), undone="Not verified")
    return Report(document=document, body=body, exit_code=int(not ok))


async def _verify(
    peer: Peer, metadata: segment_pb2.RemoteLogSegmentMetadata, progress: Progress, bar: TaskID
) -> Document:
    """Verifies one segment; one that the store lacks or cannot read is a finding."""
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
    except (RemoteResourceNotFoundError, PreconditionError, CorruptDataError) as error:
        # Lost, damaged, or sealed with a key that is gone: nobody can read it, which is what is to be found out.
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


def _total_bytes(segments: Sequence[segment_pb2.RemoteLogSegmentMetadata]) -> int:
    return sum(each.segment_size_bytes for each in segments)


def _finding_line(found: Document) -> str:
    chunk = "" if found["chunk"] is None else f" chunk {found['chunk']}"
    position = "" if found["position"] is None else f" at {found['position']}"
    return f"{found['part']}{chunk}{position}: {found['message']}"
