"""Loads segments into the caches of the storage service."""

from collections.abc import Awaitable, Sequence
from contextlib import aclosing

from aquifer.common.v1 import segment_pb2
from aquifer.storage.v1 import remote_storage_service_pb2 as storage_pb2
from aquifer.storage.v1.remote_storage_service_pb2_grpc import RemoteStorageServiceStub
from rich.progress import Progress, TaskID

from aquifer_admin import documents
from aquifer_admin.connection import Peer, Role, Session
from aquifer_admin.documents import Document
from aquifer_admin.each_segment import each_segment
from aquifer_admin.render import Column, Report, as_bytes, progress_by_bytes, table

# A warming reads from the store: it gets the time that this rate needs on top of --timeout.
_SLOWEST_BYTES_PER_SECOND = 1024 * 1024

_WARMED = (
    Column(key="segment_id", header="SEGMENT ID"),
    Column(key="partition", header="PARTITION", justify="right"),
    Column(key="start_offset", header="START", justify="right"),
    Column(key="size_bytes", header="SIZE", show=as_bytes, justify="right"),
    Column(key="warmed_bytes", header="CACHED", show=as_bytes, justify="right"),
)


async def warm_segments(
    session: Session,
    segments: Sequence[segment_pb2.RemoteLogSegmentMetadata],
    start_position: int,
    end_position: int | None,
) -> Report:
    """Load a range of positions of each segment, one after the other, with a progress bar; a failure with one does not stop the others."""
    peer = session.peer(Role.STORAGE)
    with progress_by_bytes() as progress:
        bar = progress.add_task("warming", total=None)

        def warm(metadata: segment_pb2.RemoteLogSegmentMetadata) -> Awaitable[Document]:
            request = storage_pb2.WarmSegmentRequest(
                metadata=metadata, start_position=start_position, end_position=end_position
            )
            return _warm(peer, request, progress, bar)

        outcomes = await each_segment(session, segments, warm)
    ok = not outcomes.errors
    document = {
        "ok": ok,
        "warmed_bytes": sum(row["warmed_bytes"] for row in outcomes.rows),
        **outcomes.document(),
    }
    body = outcomes.below(table("Warmed", _WARMED, outcomes.rows), undone="Not warmed")
    return Report(document=document, body=body, exit_code=int(not ok))


async def _warm(
    peer: Peer, request: storage_pb2.WarmSegmentRequest, progress: Progress, bar: TaskID
) -> Document:
    warmed_bytes = 0
    stub = RemoteStorageServiceStub(peer.channel)
    size_bytes = request.metadata.segment_size_bytes
    budget_s = peer.timeout_s + size_bytes / _SLOWEST_BYTES_PER_SECOND
    async with aclosing(peer.read(stub.WarmSegment, request, timeout_s=budget_s)) as answers:
        async for answer in answers:
            progress.advance(bar, answer.warmed_bytes - warmed_bytes)
            warmed_bytes = answer.warmed_bytes
    return {**documents.segment(request.metadata), "warmed_bytes": warmed_bytes}
