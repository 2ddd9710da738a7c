"""The RemoteStorageManager over gRPC."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from aquifer.storage.v1 import remote_storage_service_pb2 as pb
from aquifer.storage.v1.remote_storage_service_pb2_grpc import RemoteStorageServiceStub
from aquifer_core.errors import InvalidConfigurationError
from aquifer_core.ports import RemoteStorageManager
from aquifer_core.segment import (
    CopyResult,
    IndexType,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    StoredSegment,
    VerifyProgress,
)
from aquifer_rpc import convert
from aquifer_rpc.calls import call_stream, call_unary, call_upload
from aquifer_rpc.large_messages import WirePiece, decode_piece
from google.protobuf.message import Message

from aquifer_client._connected import Connection
from aquifer_client._segment_parts import checked_pieces, copy_messages, encode_copy_message

if TYPE_CHECKING:
    from aquifer.storage.v1.remote_storage_service_pb2_grpc import RemoteStorageServiceAsyncStub

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["RemoteStorageService"].full_name
_PIECE_STREAMS: Final[Mapping[type[Message], str]] = {
    pb.FetchLogSegmentRequest: "FetchLogSegment",
    pb.FetchRecordsRequest: "FetchRecords",
    pb.FetchIndexRequest: "FetchIndex",
}


class GrpcRemoteStorageManager(RemoteStorageManager):
    """A RemoteStorageManager that asks the storage service.

    Every call of one segment goes to the same endpoint while that answers (rendezvous hash of the segment id), so that the
    caches of replicas do not overlap; calls are repeated as `aquifer_rpc` repeats them, copies only until a replica is connected.
    """

    def __init__(self) -> None:
        self._connection = Connection()
        self._made_stub: RemoteStorageServiceAsyncStub | None = None
        self._copies: Any = None
        self._piece_streams: dict[type[Message], Any] = {}

    async def configure(self, configs: Mapping[str, str]) -> None:
        """Connects; see `RemoteRoleConfig` for the keys.

        Raises:
            InvalidConfigurationError: refused properties, or configured already.
        """
        channel = self._connection.open(configs)
        self._made_stub = RemoteStorageServiceStub(channel)
        self._copies = channel.stream_unary(
            f"/{_SERVICE}/CopyLogSegmentData",
            request_serializer=encode_copy_message,
            response_deserializer=pb.CopyLogSegmentDataResponse.FromString,
        )
        self._piece_streams = {
            request: channel.unary_stream(
                f"/{_SERVICE}/{method}",
                request_serializer=request.SerializeToString,
                response_deserializer=decode_piece,
            )
            for request, method in _PIECE_STREAMS.items()
        }

    async def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> CopyResult:
        """See `RemoteStorageManager`. Bytes are read from the source no faster than the service takes them."""
        if self._copies is None:
            raise _not_configured()
        async with aclosing(copy_messages(metadata, data)) as messages:
            answer = await call_upload(
                self._copies,
                messages,
                deadline_s=self._connection.config.stream_deadline_s,
                affinity=_affinity(metadata),
            )
        return convert.copy_result_from_pb(answer)

    async def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int,
        end_position: int | None = None,
    ) -> AsyncIterator[bytes | memoryview]:
        """See `RemoteStorageManager`."""
        request = pb.FetchLogSegmentRequest(
            metadata=convert.segment_metadata_to_pb(metadata),
            start_position=start_position,
            end_position=end_position,
        )
        deadline_s = self._connection.config.stream_deadline_s
        pieces = self._pieces(metadata, request, start_position, deadline_s)
        async with aclosing(pieces) as contents:
            async for content in contents:
                yield content

    async def fetch_records(
        self,
        metadata: RemoteLogSegmentMetadata,
        fetch_offset: int,
        max_bytes: int,
        *,
        min_one_batch: bool = True,
        next_segment: RemoteLogSegmentMetadata | None = None,
    ) -> AsyncIterator[bytes | memoryview]:
        """See `RemoteStorageManager`."""
        request = pb.FetchRecordsRequest(
            metadata=convert.segment_metadata_to_pb(metadata),
            fetch_offset=fetch_offset,
            max_bytes=max_bytes,
            min_one_batch=min_one_batch,
            next_segment=None
            if next_segment is None
            else convert.segment_metadata_to_pb(next_segment),
        )
        deadline_s = self._connection.config.stream_deadline_s
        async with aclosing(self._pieces(metadata, request, None, deadline_s)) as contents:
            async for content in contents:
                yield content

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """See `RemoteStorageManager`."""
        request = pb.FetchIndexRequest(
            metadata=convert.segment_metadata_to_pb(metadata),
            index_type=convert.index_type_to_pb(index_type),
        )
        async with aclosing(self._pieces(metadata, request, 0, None)) as contents:
            return b"".join([content async for content in contents])

    async def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """See `RemoteStorageManager`."""
        request = pb.DeleteLogSegmentDataRequest(metadata=convert.segment_metadata_to_pb(metadata))
        await call_unary(self._stub.DeleteLogSegmentData, request, affinity=_affinity(metadata))

    async def warm_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int = 0,
        end_position: int | None = None,
    ) -> int:
        """Loads a range of positions into the caches of the service, from the front on, as far as there is room. Idempotent.

        Returns:
            Bytes of the log that are cached now.

        Raises:
            RemoteResourceNotFoundError: the segment is not in the store.
            CorruptSegmentError: stored bytes are damaged.
        """
        request = pb.WarmSegmentRequest(
            metadata=convert.segment_metadata_to_pb(metadata),
            start_position=start_position,
            end_position=end_position,
        )
        answers = call_stream(
            self._stub.WarmSegment,
            request,
            deadline_s=self._connection.config.stream_deadline_s,
            affinity=_affinity(metadata),
        )
        warmed_bytes = 0
        async with aclosing(answers):
            async for answer in answers:
                warmed_bytes = answer.warmed_bytes
        return warmed_bytes

    async def rewrap_segment(
        self, metadata: RemoteLogSegmentMetadata
    ) -> tuple[str | None, str | None]:
        """Wraps the segment's data key with the active key of the service; no data moves. Idempotent.

        Returns:
            Ids of the key before and of the key now; equal when nothing was to do, None when the segment is not encrypted.

        Raises:
            RemoteResourceNotFoundError: the segment is not in the store.
            PreconditionError: one of the keys is not there (ENCRYPTION_KEY_UNAVAILABLE).
        """
        request = pb.RewrapSegmentRequest(metadata=convert.segment_metadata_to_pb(metadata))
        answer = await call_unary(self._stub.RewrapSegment, request, affinity=_affinity(metadata))
        previous = answer.previous_key_id if answer.HasField("previous_key_id") else None
        return previous, answer.key_id if answer.HasField("key_id") else None

    async def describe_segment(self, metadata: RemoteLogSegmentMetadata) -> StoredSegment:
        """See `RemoteStorageManager`."""
        request = pb.DescribeSegmentRequest(metadata=convert.segment_metadata_to_pb(metadata))
        answer = await call_unary(self._stub.DescribeSegment, request, affinity=_affinity(metadata))
        return convert.stored_segment_from_pb(answer.segment)

    async def verify_segment(
        self, metadata: RemoteLogSegmentMetadata
    ) -> AsyncIterator[VerifyProgress]:
        """See `RemoteStorageManager`."""
        request = pb.VerifySegmentRequest(metadata=convert.segment_metadata_to_pb(metadata))
        answers = call_stream(
            self._stub.VerifySegment,
            request,
            deadline_s=self._connection.config.stream_deadline_s,
            affinity=_affinity(metadata),
        )
        async with aclosing(answers):
            async for answer in answers:
                yield convert.verify_progress_from_pb(answer)

    async def list_stored_segments(self, prefix: str = "") -> AsyncIterator[StoredSegment]:
        """See `RemoteStorageManager`."""
        answers = call_stream(
            self._stub.ListStoredSegments,
            pb.ListStoredSegmentsRequest(prefix=prefix),
            deadline_s=self._connection.config.stream_deadline_s,
        )
        async with aclosing(answers):
            async for answer in answers:
                yield convert.stored_segment_from_pb(answer.segment)

    async def close(self) -> None:
        """See `RemoteStorageManager`."""
        await self._connection.close()

    def _pieces(
        self,
        metadata: RemoteLogSegmentMetadata,
        request: Message,
        start_position: int | None,
        deadline_s: float | None,
    ) -> AsyncGenerator[bytes | memoryview, None]:
        """The checked bytes of a stream of large messages."""
        if self._made_stub is None:
            raise _not_configured()
        pieces: AsyncGenerator[WirePiece, None] = call_stream(
            self._piece_streams[type(request)],
            request,
            deadline_s=deadline_s,
            affinity=_affinity(metadata),
        )
        return checked_pieces(pieces, str(metadata.segment_id.id), start_position)

    @property
    def _stub(self) -> RemoteStorageServiceAsyncStub:
        if self._made_stub is None:
            raise _not_configured()
        return self._made_stub


def _not_configured() -> InvalidConfigurationError:
    return InvalidConfigurationError("not configured yet; call configure first")


def _affinity(metadata: RemoteLogSegmentMetadata) -> bytes:
    return metadata.segment_id.id.raw
