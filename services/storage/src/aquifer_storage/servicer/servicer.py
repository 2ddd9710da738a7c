"""RemoteStorageService: converts, calls, converts back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from aquifer.storage.v1 import remote_storage_service_pb2 as pb
from aquifer.storage.v1.remote_storage_service_pb2_grpc import RemoteStorageServiceServicer
from aquifer_rpc import convert
from aquifer_rpc.large_messages import MAX_DATA_BYTES, encoded_pieces

from aquifer_storage import __version__
from aquifer_storage.domain.options import MAX_SEGMENT_BYTES
from aquifer_storage.domain.remote_storage import RemoteStorage
from aquifer_storage.domain.store_check import StoreCheck
from aquifer_storage.servicer.check_results import check_result_to_pb
from aquifer_storage.servicer.copy_stream import CopyStream

if TYPE_CHECKING:
    import grpc.aio

    Context = grpc.aio.ServicerContext[Any, Any]


class RemoteStorageServicer(RemoteStorageServiceServicer):
    """Serves a RemoteStorage."""

    def __init__(self, storage: RemoteStorage, *, backend: str, store_check: StoreCheck) -> None:
        self._storage = storage
        self._store_check = store_check
        self._backend = backend

    async def CopyLogSegmentData(
        self,
        request_iterator: AsyncIterator[pb.CopyLogSegmentDataRequest],
        context: Context,
    ) -> pb.CopyLogSegmentDataResponse:
        """Copies a segment while its bytes arrive."""
        stream = CopyStream(aiter(request_iterator))
        metadata = await stream.begin()
        result = await self._storage.copy_received(metadata, stream.small_bytes, stream.receive)
        return convert.copy_result_to_pb(result)

    async def FetchLogSegment(
        self, request: pb.FetchLogSegmentRequest, context: Context
    ) -> AsyncIterator[pb.FetchLogSegmentResponse]:
        """Reads a range of positions."""
        metadata = convert.segment_metadata_from_pb(request.metadata)
        end = request.end_position if request.HasField("end_position") else None
        at = request.start_position
        async with aclosing(self._storage.fetch_log_segment(metadata, at, end)) as found:
            async for data in found:
                for piece in encoded_pieces(pb.FetchLogSegmentResponse, at, data):
                    yield piece
                at += len(data)

    async def FetchRecords(
        self, request: pb.FetchRecordsRequest, context: Context
    ) -> AsyncIterator[pb.FetchRecordsResponse]:
        """Reads whole record batches."""
        following = (
            convert.segment_metadata_from_pb(request.next_segment, "next_segment")
            if request.HasField("next_segment")
            else None
        )
        async with aclosing(
            self._storage.fetch_positioned_records(
                convert.segment_metadata_from_pb(request.metadata),
                request.fetch_offset,
                request.max_bytes,
                min_one_batch=request.min_one_batch,
                next_segment=following,
            )
        ) as found:
            async for start, data in found:
                for piece in encoded_pieces(pb.FetchRecordsResponse, start, data):
                    yield piece

    async def FetchIndex(
        self, request: pb.FetchIndexRequest, context: Context
    ) -> AsyncIterator[pb.FetchIndexResponse]:
        """Reads a whole index."""
        metadata = convert.segment_metadata_from_pb(request.metadata)
        index_type = convert.index_type_from_pb(request.index_type)
        data = await self._storage.fetch_index(metadata, index_type)
        for piece in encoded_pieces(pb.FetchIndexResponse, 0, data):
            yield piece

    async def DeleteLogSegmentData(
        self, request: pb.DeleteLogSegmentDataRequest, context: Context
    ) -> pb.DeleteLogSegmentDataResponse:
        """Deletes a segment."""
        metadata = convert.segment_metadata_from_pb(request.metadata)
        await self._storage.delete_log_segment_data(metadata)
        return pb.DeleteLogSegmentDataResponse()

    async def DescribeSegment(
        self, request: pb.DescribeSegmentRequest, context: Context
    ) -> pb.DescribeSegmentResponse:
        """Says what the manifest says."""
        metadata = convert.segment_metadata_from_pb(request.metadata)
        stored = await self._storage.describe_segment(metadata)
        return pb.DescribeSegmentResponse(segment=convert.stored_segment_to_pb(stored))

    async def VerifySegment(
        self, request: pb.VerifySegmentRequest, context: Context
    ) -> AsyncIterator[pb.VerifySegmentResponse]:
        """Verifies a segment."""
        metadata = convert.segment_metadata_from_pb(request.metadata)
        async for progress in self._storage.verify_segment(metadata):
            yield convert.verify_progress_to_pb(progress)

    async def ListStoredSegments(
        self, request: pb.ListStoredSegmentsRequest, context: Context
    ) -> AsyncIterator[pb.ListStoredSegmentsResponse]:
        """Lists the segments of the store."""
        async for stored in self._storage.list_stored_segments(request.prefix):
            yield pb.ListStoredSegmentsResponse(segment=convert.stored_segment_to_pb(stored))

    async def RewrapSegment(
        self, request: pb.RewrapSegmentRequest, context: Context
    ) -> pb.RewrapSegmentResponse:
        """Wraps a segment's data key again."""
        metadata = convert.segment_metadata_from_pb(request.metadata)
        done = await self._storage.rewrap_segment(metadata)
        return pb.RewrapSegmentResponse(
            previous_key_id=done.previous_key_id,
            key_id=done.key_id,
            is_rewrapped=done.is_rewrapped,
        )

    async def WarmSegment(
        self, request: pb.WarmSegmentRequest, context: Context
    ) -> AsyncIterator[pb.WarmSegmentResponse]:
        """Loads chunks ahead of their readers."""
        metadata = convert.segment_metadata_from_pb(request.metadata)
        end = request.end_position if request.HasField("end_position") else None
        warming = self._storage.warm_segment(metadata, request.start_position, end)
        async with aclosing(warming) as steps:
            async for step in steps:
                yield pb.WarmSegmentResponse(
                    warmed_bytes=step.warmed_bytes, total_bytes=step.total_bytes, done=step.done
                )

    async def CheckStore(
        self, request: pb.CheckStoreRequest, context: Context
    ) -> AsyncIterator[pb.CheckStoreResponse]:
        """Checks the store."""
        async with aclosing(self._store_check.run()) as results:
            async for result in results:
                yield check_result_to_pb(result)

    async def GetCapabilities(
        self, request: pb.GetCapabilitiesRequest, context: Context
    ) -> pb.GetCapabilitiesResponse:
        """Says what the service can do and how it is set."""
        return pb.GetCapabilitiesResponse(
            max_message_data_bytes=MAX_DATA_BYTES,
            max_segment_bytes=MAX_SEGMENT_BYTES,
            backend=self._backend,
            compression=self._storage.options.codec,
            encryption=self._storage.encryption,
            chunk_size_bytes=self._storage.options.chunk_size_bytes,
            version=__version__,
        )
