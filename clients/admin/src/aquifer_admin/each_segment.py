"""The same thing for many segments, one after the other: what fails with one, and what is deleted meanwhile."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from aquifer.common.v1 import segment_pb2
from aquifer.metadata.v1 import remote_log_metadata_service_pb2 as facts_pb2
from aquifer.metadata.v1.remote_log_metadata_service_pb2_grpc import RemoteLogMetadataServiceStub
from aquifer_core.errors import RemoteResourceNotFoundError
from rich.console import RenderableType

from aquifer_admin.connection import Role, Session
from aquifer_admin.documents import Document
from aquifer_admin.in_turn import in_turn
from aquifer_admin.render import Column, stacked, table

_DELETED: Final = (
    segment_pb2.REMOTE_LOG_SEGMENT_STATE_DELETE_SEGMENT_STARTED,
    segment_pb2.REMOTE_LOG_SEGMENT_STATE_DELETE_SEGMENT_FINISHED,
)
_ERROR: Final = (
    Column(key="segment_id", header="SEGMENT ID"),
    Column(key="error_reason", header="ERROR", bad=bool),
    Column(key="error", header="TEXT", wraps=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """What became of the segments.

    Attributes:
        rows: documents of those that it was done with, well or badly.
        deleted: ids of those that retention, or whoever else, has deleted since they were listed.
        errors: those that it was not done with.
    """

    rows: list[Document]
    deleted: list[str]
    errors: list[Document]

    def document(self) -> Document:
        """The part of a report that is the same for all commands."""
        return {"segments": self.rows, "deleted": self.deleted, "errors": self.errors}

    def below(self, body: RenderableType, undone: str) -> RenderableType:
        """A report for people, with what is missing from it; `undone` is a title."""
        parts = [body]
        if self.deleted:
            parts.append(f"Deleted meanwhile: {', '.join(self.deleted)}")
        if self.errors:
            parts.append(table(undone, _ERROR, self.errors))
        return stacked(*parts)


async def each_segment(
    session: Session,
    segments: Sequence[segment_pb2.RemoteLogSegmentMetadata],
    work: Callable[[segment_pb2.RemoteLogSegmentMetadata], Awaitable[Document]],
    is_bad: Callable[[Document], bool] = lambda _: False,
) -> Outcomes:
    """Does the work for each; one that is deleted meanwhile cannot be bad.

    Args:
        session: with the metadata service, which is asked about what is bad or not there.
        segments: as they were listed.
        work: makes the document of one.
        is_bad: whether a document says that something is wrong with the segment.

    Raises:
        AquiferError: nothing could be done; of the first segment.
    """
    deleted: list[str] = []

    async def done(metadata: segment_pb2.RemoteLogSegmentMetadata) -> Document | None:
        try:
            row = await work(metadata)
        except RemoteResourceNotFoundError:
            if not await _is_deleted(session, metadata):
                raise
        else:
            if not is_bad(row) or not await _is_deleted(session, metadata):
                return row
        deleted.append(metadata.segment_id.id)
        return None

    rows, failed = await in_turn(segments, done)
    errors: list[Document] = [
        {
            "segment_id": metadata.segment_id.id,
            "error_reason": error.reason.value,
            "error": error.message,
        }
        for metadata, error in failed
    ]
    return Outcomes(rows=[row for row in rows if row is not None], deleted=deleted, errors=errors)


async def _is_deleted(session: Session, metadata: segment_pb2.RemoteLogSegmentMetadata) -> bool:
    peer = session.peer(Role.METADATA)
    stub = RemoteLogMetadataServiceStub(peer.channel)
    request = facts_pb2.GetSegmentHistoryRequest(segment_id=metadata.segment_id)
    events = (await peer.ask(stub.GetSegmentHistory, request)).events
    return bool(events) and events[-1].to_state in _DELETED
