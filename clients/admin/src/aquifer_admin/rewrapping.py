"""Wraps the data keys of segments with the active key of the storage service."""

from collections.abc import Sequence

from aquifer.common.v1 import segment_pb2
from aquifer.storage.v1 import remote_storage_service_pb2 as storage_pb2
from aquifer.storage.v1.remote_storage_service_pb2_grpc import RemoteStorageServiceStub
from aquifer_core.errors import CorruptDataError, PreconditionError, RemoteResourceNotFoundError
from rich.progress import Progress, TaskID

from aquifer_admin import documents
from aquifer_admin.connection import Peer, Role, Session
from aquifer_admin.documents import Document
from aquifer_admin.each_segment import each_segment
from aquifer_admin.render import Column, Report, progress_by_count, table

_REWRAPPED = (
    Column(key="segment_id", header="SEGMENT ID"),
    Column(key="partition", header="PARTITION", justify="right"),
    Column(key="start_offset", header="START", justify="right"),
    Column(key="previous_key_id", header="KEY BEFORE"),
    Column(key="key_id", header="KEY"),
    Column(key="error", header="ERROR", wraps=True, bad=bool),
)


async def rewrap_segments(
    session: Session, segments: Sequence[segment_pb2.RemoteLogSegmentMetadata]
) -> Report:
    """Rewrap segments one after the other, with a progress bar; what cannot be is told and does not stop the others."""
    peer = session.peer(Role.STORAGE)
    with progress_by_count() as progress:
        bar = progress.add_task("rewrapping", total=len(segments))
        outcomes = await each_segment(
            session,
            segments,
            lambda each: _rewrap(peer, each, progress, bar),
            is_bad=lambda row: bool(row["error"]),
        )
    rows = outcomes.rows
    ok = not outcomes.errors and not any(row["error"] for row in rows)
    document = {
        "ok": ok,
        "rewrapped": sum(row["is_rewrapped"] for row in rows),
        **outcomes.document(),
    }
    body = outcomes.below(table("Rewrapped", _REWRAPPED, rows), undone="Not rewrapped")
    return Report(document=document, body=body, exit_code=int(not ok))


async def _rewrap(
    peer: Peer, metadata: segment_pb2.RemoteLogSegmentMetadata, progress: Progress, bar: TaskID
) -> Document:
    stub = RemoteStorageServiceStub(peer.channel)
    request = storage_pb2.RewrapSegmentRequest(metadata=metadata)
    answer, failure = storage_pb2.RewrapSegmentResponse(), None
    try:
        answer = await peer.ask(stub.RewrapSegment, request)
    except (RemoteResourceNotFoundError, PreconditionError, CorruptDataError) as error:
        failure = error.message
    progress.advance(bar)
    return {
        **documents.segment(metadata),
        "previous_key_id": answer.previous_key_id or None,
        "key_id": answer.key_id or None,
        "is_rewrapped": answer.is_rewrapped,
        "error": failure,
    }
