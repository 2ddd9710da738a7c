"""RemoteLogMetadataService: converts, calls, converts back."""

from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import grpc.aio
from aquifer.metadata.v1 import remote_log_metadata_service_pb2 as pb
from aquifer.metadata.v1.remote_log_metadata_service_pb2_grpc import (
    RemoteLogMetadataServiceServicer,
)
from aquifer_core.errors import PreconditionError
from aquifer_core.partition_summary import PartitionSummaries
from aquifer_core.ports import RemoteLogMetadataManager
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.segment_listings import segments_from
from aquifer_core.segment_run import SegmentRuns
from aquifer_rpc import convert

from aquifer_metadata.servicer.partition_summaries import summaries_from_request, summary_to_pb
from aquifer_metadata.servicer.task_pauses import pages_of_pauses, update_pauses

# In quotes: the class is generic in its stub only.
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

PAGE_SIZE = 500
"""Entries of one message of a listing, as the contract says."""


class RemoteLogMetadataServicer(RemoteLogMetadataServiceServicer):
    """Serves any RemoteLogMetadataManager."""

    def __init__(self, manager: RemoteLogMetadataManager) -> None:
        self._manager = manager

    async def AddRemoteLogSegmentMetadata(
        self, request: pb.AddRemoteLogSegmentMetadataRequest, context: Context
    ) -> pb.AddRemoteLogSegmentMetadataResponse:
        """See the contract."""
        await self._manager.add_remote_log_segment_metadata(
            convert.segment_metadata_from_pb(request.metadata), leader_epoch=_leader_epoch(request)
        )
        return pb.AddRemoteLogSegmentMetadataResponse()

    async def UpdateRemoteLogSegmentMetadata(
        self, request: pb.UpdateRemoteLogSegmentMetadataRequest, context: Context
    ) -> pb.UpdateRemoteLogSegmentMetadataResponse:
        """See the contract."""
        await self._manager.update_remote_log_segment_metadata(
            convert.segment_update_from_pb(request.update), leader_epoch=_leader_epoch(request)
        )
        return pb.UpdateRemoteLogSegmentMetadataResponse()

    async def GetRemoteLogSegmentMetadata(
        self, request: pb.GetRemoteLogSegmentMetadataRequest, context: Context
    ) -> pb.GetRemoteLogSegmentMetadataResponse:
        """See the contract."""
        found = await self._manager.remote_log_segment_metadata(
            convert.tip_from_pb(request.topic_id_partition), request.leader_epoch, request.offset
        )
        return pb.GetRemoteLogSegmentMetadataResponse(metadata=_to_pb(found))

    async def GetHighestOffsetForEpoch(
        self, request: pb.GetHighestOffsetForEpochRequest, context: Context
    ) -> pb.GetHighestOffsetForEpochResponse:
        """See the contract."""
        offset = await self._manager.highest_offset_for_epoch(
            convert.tip_from_pb(request.topic_id_partition), request.leader_epoch
        )
        return pb.GetHighestOffsetForEpochResponse(offset=offset)

    async def PutRemotePartitionDeleteMetadata(
        self, request: pb.PutRemotePartitionDeleteMetadataRequest, context: Context
    ) -> pb.PutRemotePartitionDeleteMetadataResponse:
        """See the contract."""
        await self._manager.put_remote_partition_delete_metadata(
            convert.partition_delete_from_pb(request)
        )
        return pb.PutRemotePartitionDeleteMetadataResponse()

    async def ListPartitionDeletions(
        self, request: pb.ListPartitionDeletionsRequest, context: Context
    ) -> AsyncIterator[pb.ListPartitionDeletionsResponse]:
        """See the contract."""
        page = pb.ListPartitionDeletionsResponse()
        async for deletion in self._manager.list_partition_deletions():
            page.partitions.append(convert.partition_deletion_to_pb(deletion))
            if len(page.partitions) == PAGE_SIZE:
                yield page
                page = pb.ListPartitionDeletionsResponse()
        if page.partitions:
            yield page

    async def ListRemoteLogSegments(
        self, request: pb.ListRemoteLogSegmentsRequest, context: Context
    ) -> AsyncIterator[pb.ListRemoteLogSegmentsResponse]:
        """See the contract."""
        tip, leader_epoch = convert.tip_from_pb(request.topic_id_partition), _leader_epoch(request)
        segments = (
            segments_from(self._manager, tip, request.from_start_offset)
            if leader_epoch is None
            else self._manager.list_remote_log_segments(tip, leader_epoch)
        )
        page = pb.ListRemoteLogSegmentsResponse()
        async for segment in segments:
            page.segments.append(convert.segment_metadata_to_pb(segment))
            if len(page.segments) == PAGE_SIZE:
                yield page
                page = pb.ListRemoteLogSegmentsResponse()
        if page.segments:
            yield page

    async def GetRemoteLogSize(
        self, request: pb.GetRemoteLogSizeRequest, context: Context
    ) -> pb.GetRemoteLogSizeResponse:
        """See the contract."""
        size_bytes = await self._manager.remote_log_size(
            convert.tip_from_pb(request.topic_id_partition), request.leader_epoch
        )
        return pb.GetRemoteLogSizeResponse(size_bytes=size_bytes)

    async def GetNextSegmentWithTxnIndex(
        self, request: pb.GetNextSegmentWithTxnIndexRequest, context: Context
    ) -> pb.GetNextSegmentWithTxnIndexResponse:
        """See the contract."""
        found = await self._manager.next_segment_with_txn_index(
            convert.tip_from_pb(request.topic_id_partition), request.leader_epoch, request.offset
        )
        return pb.GetNextSegmentWithTxnIndexResponse(metadata=_to_pb(found))

    async def GetSegmentRun(
        self, request: pb.GetSegmentRunRequest, context: Context
    ) -> pb.GetSegmentRunResponse:
        """See the contract."""
        if not isinstance(self._manager, SegmentRuns):
            raise PreconditionError("the metadata behind this service has no runs")
        found = await self._manager.segment_run(
            convert.tip_from_pb(request.topic_id_partition),
            request.leader_epoch,
            request.offset,
            request.max_bytes,
        )
        return pb.GetSegmentRunResponse(
            segments=map(convert.segment_metadata_to_pb, found.segments),
            may_have_transactions=found.may_have_transactions,
        )

    async def FindSegmentForTimestamp(
        self, request: pb.FindSegmentForTimestampRequest, context: Context
    ) -> pb.FindSegmentForTimestampResponse:
        """See the contract."""
        found = await self._manager.find_segment_for_timestamp(
            convert.tip_from_pb(request.topic_id_partition),
            convert.lineage_from_pb(request.lineage),
            request.timestamp_ms,
            request.min_end_offset,
        )
        return pb.FindSegmentForTimestampResponse(metadata=_to_pb(found))

    async def OnPartitionLeadershipChanges(
        self, request: pb.OnPartitionLeadershipChangesRequest, context: Context
    ) -> pb.OnPartitionLeadershipChangesResponse:
        """See the contract."""
        await self._manager.on_partition_leadership_changes(
            {
                convert.tip_from_pb(lead.topic_id_partition): lead.leader_epoch
                for lead in request.leaders
            },
            [convert.tip_from_pb(tip) for tip in request.followers],
        )
        return pb.OnPartitionLeadershipChangesResponse()

    async def OnStopPartitions(
        self, request: pb.OnStopPartitionsRequest, context: Context
    ) -> pb.OnStopPartitionsResponse:
        """See the contract."""
        await self._manager.on_stop_partitions(
            [convert.tip_from_pb(tip) for tip in request.partitions]
        )
        return pb.OnStopPartitionsResponse()

    async def IsReady(self, request: pb.IsReadyRequest, context: Context) -> pb.IsReadyResponse:
        """See the contract."""
        tip = convert.tip_from_pb(request.topic_id_partition)
        return pb.IsReadyResponse(ready=await self._manager.is_ready(tip))

    async def GetEarliestLogOffset(
        self, request: pb.GetEarliestLogOffsetRequest, context: Context
    ) -> pb.GetEarliestLogOffsetResponse:
        """See the contract."""
        tip = convert.tip_from_pb(request.topic_id_partition)
        return pb.GetEarliestLogOffsetResponse(offset=await self._manager.earliest_log_offset(tip))

    async def UpdateEarliestLogOffset(
        self, request: pb.UpdateEarliestLogOffsetRequest, context: Context
    ) -> pb.UpdateEarliestLogOffsetResponse:
        """See the contract."""
        await self._manager.update_earliest_log_offset(
            convert.tip_from_pb(request.topic_id_partition), request.offset, request.leader_epoch
        )
        return pb.UpdateEarliestLogOffsetResponse()

    async def ListRetentionCandidates(
        self, request: pb.ListRetentionCandidatesRequest, context: Context
    ) -> pb.ListRetentionCandidatesResponse:
        """See the contract."""
        plan = await self._manager.list_retention_candidates(
            convert.tip_from_pb(request.topic_id_partition),
            convert.lineage_from_pb(request.lineage),
            convert.retention_policy_from_pb(request.policy),
            request.now_ms,
        )
        return convert.retention_plan_to_pb(plan)

    async def SummarizePartitions(
        self, request: pb.SummarizePartitionsRequest, context: Context
    ) -> pb.SummarizePartitionsResponse:
        """See the contract."""
        if not isinstance(self._manager, PartitionSummaries):
            raise PreconditionError("the metadata behind this service has no summaries")
        asked = summaries_from_request(request)
        found = await self._manager.partition_summaries(asked)
        return pb.SummarizePartitionsResponse(
            partitions=[
                summary_to_pb(summary, known)
                for summary, (_, known) in zip(found, asked, strict=True)
            ]
        )

    async def UpdateTaskPauses(
        self, request: pb.UpdateTaskPausesRequest, context: Context
    ) -> pb.UpdateTaskPausesResponse:
        """See the contract."""
        await update_pauses(self._manager, request)
        return pb.UpdateTaskPausesResponse()

    async def ListTaskPauses(
        self, request: pb.ListTaskPausesRequest, context: Context
    ) -> AsyncIterator[pb.ListTaskPausesResponse]:
        """See the contract."""
        async for page in pages_of_pauses(self._manager, PAGE_SIZE):
            yield page

    async def WatchPartition(
        self, request: pb.WatchPartitionRequest, context: Context
    ) -> AsyncIterator[pb.WatchPartitionResponse]:
        """See the contract."""
        tip = convert.tip_from_pb(request.topic_id_partition)
        async for change in self._manager.watch_partition(tip, request.from_version):
            yield convert.partition_change_to_pb(change)

    async def GetSegmentHistory(
        self, request: pb.GetSegmentHistoryRequest, context: Context
    ) -> pb.GetSegmentHistoryResponse:
        """See the contract."""
        events = await self._manager.segment_history(convert.segment_id_from_pb(request.segment_id))
        return pb.GetSegmentHistoryResponse(
            events=[convert.segment_event_to_pb(event) for event in events]
        )


def _leader_epoch(
    request: (
        pb.AddRemoteLogSegmentMetadataRequest
        | pb.UpdateRemoteLogSegmentMetadataRequest
        | pb.ListRemoteLogSegmentsRequest
    ),
) -> int | None:
    return request.leader_epoch if request.HasField("leader_epoch") else None


def _to_pb(found: RemoteLogSegmentMetadata | None) -> Any:
    return None if found is None else convert.segment_metadata_to_pb(found)
