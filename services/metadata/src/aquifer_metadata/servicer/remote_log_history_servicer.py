"""RemoteLogMetadataService with its memory: what the role does not ask for, and people do."""

from collections.abc import AsyncIterator

from aquifer.metadata.v1 import remote_log_metadata_service_pb2 as pb
from aquifer_core.ports import RemoteLogMetadataManager
from aquifer_rpc import convert

from aquifer_metadata.domain.ports import RemoteLogHistory
from aquifer_metadata.servicer.remote_log_metadata_servicer import (
    PAGE_SIZE,
    Context,
    RemoteLogMetadataServicer,
)


class RemoteLogHistoryServicer(RemoteLogMetadataServicer):
    """Serves a RemoteLogMetadataManager that has a history."""

    def __init__(self, manager: RemoteLogMetadataManager, history: RemoteLogHistory) -> None:
        super().__init__(manager)
        self._history = history

    async def ListRemoteLogSegmentsAt(
        self, request: pb.ListRemoteLogSegmentsAtRequest, context: Context
    ) -> AsyncIterator[pb.ListRemoteLogSegmentsAtResponse]:
        """See the contract."""
        tip = convert.tip_from_pb(request.topic_id_partition)
        page = pb.ListRemoteLogSegmentsAtResponse()
        async for segment in self._history.segments_at(tip, request.timestamp_ms):
            page.segments.append(convert.segment_metadata_to_pb(segment))
            if len(page.segments) == PAGE_SIZE:
                yield page
                page = pb.ListRemoteLogSegmentsAtResponse()
        if page.segments:
            yield page
