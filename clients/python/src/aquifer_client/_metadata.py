"""The RemoteLogMetadataManager over gRPC."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

import structlog
from aquifer.metadata.v1 import remote_log_metadata_service_pb2 as pb
from aquifer.metadata.v1.remote_log_metadata_service_pb2_grpc import RemoteLogMetadataServiceStub
from aquifer_core.errors import (
    ErrorReason,
    InternalError,
    InvalidConfigurationError,
    RemoteStorageUnavailableError,
    UnavailableError,
)
from aquifer_core.ids import RemoteLogSegmentId, TopicIdPartition
from aquifer_core.partition_summary import PartitionSummary, SummariesUnsupportedError
from aquifer_core.ports import (
    PartitionChange,
    RemoteLogMetadataManager,
    RetentionPlan,
    RetentionPolicy,
    SegmentEvent,
)
from aquifer_core.segment import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)
from aquifer_core.segment_run import RunsUnsupportedError, SegmentRun
from aquifer_core.task_pauses import PauseTarget, TaskPause
from aquifer_rpc import convert
from aquifer_rpc.calls import FOREVER, call_stream, call_unary
from aquifer_rpc.errors import is_unimplemented

from aquifer_client._connected import Connection
from aquifer_client._leadership import leadership_requests, stop_requests
from aquifer_client._partition_summaries import summaries_from_pb, summaries_request
from aquifer_client._task_pauses import listed_pauses, update_pauses

if TYPE_CHECKING:
    from aquifer.metadata.v1.remote_log_metadata_service_pb2_grpc import (
        RemoteLogMetadataServiceAsyncStub,
    )

logger = structlog.get_logger(__name__)


class GrpcRemoteLogMetadataManager(RemoteLogMetadataManager):
    """A RemoteLogMetadataManager that asks the metadata service; every call may go to any replica of it."""

    def __init__(self) -> None:
        self._connection = Connection()
        self._made_stub: RemoteLogMetadataServiceAsyncStub | None = None

    async def configure(self, configs: Mapping[str, str]) -> None:
        """Connects; see `RemoteRoleConfig` for the keys.

        Raises:
            InvalidConfigurationError: refused properties, or configured already.
        """
        self._made_stub = RemoteLogMetadataServiceStub(self._connection.open(configs))

    async def add_remote_log_segment_metadata(
        self, metadata: RemoteLogSegmentMetadata, *, leader_epoch: int | None = None
    ) -> None:
        """See `RemoteLogMetadataManager`."""
        request = pb.AddRemoteLogSegmentMetadataRequest(
            metadata=convert.segment_metadata_to_pb(metadata), leader_epoch=leader_epoch
        )
        await call_unary(self._stub.AddRemoteLogSegmentMetadata, request)

    async def update_remote_log_segment_metadata(
        self, update: RemoteLogSegmentMetadataUpdate, *, leader_epoch: int | None = None
    ) -> None:
        """See `RemoteLogMetadataManager`."""
        request = pb.UpdateRemoteLogSegmentMetadataRequest(
            update=convert.segment_update_to_pb(update), leader_epoch=leader_epoch
        )
        await call_unary(self._stub.UpdateRemoteLogSegmentMetadata, request)

    async def remote_log_segment_metadata(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """See `RemoteLogMetadataManager`."""
        request = pb.GetRemoteLogSegmentMetadataRequest(
            topic_id_partition=convert.tip_to_pb(topic_id_partition),
            leader_epoch=leader_epoch,
            offset=offset,
        )
        answer = await call_unary(self._stub.GetRemoteLogSegmentMetadata, request)
        if not answer.HasField("metadata"):
            return None
        return convert.segment_metadata_from_pb(answer.metadata)

    async def highest_offset_for_epoch(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int
    ) -> int | None:
        """See `RemoteLogMetadataManager`."""
        request = pb.GetHighestOffsetForEpochRequest(
            topic_id_partition=convert.tip_to_pb(topic_id_partition), leader_epoch=leader_epoch
        )
        answer = await call_unary(self._stub.GetHighestOffsetForEpoch, request)
        return answer.offset if answer.HasField("offset") else None

    async def put_remote_partition_delete_metadata(
        self, metadata: RemotePartitionDeleteMetadata
    ) -> None:
        """See `RemoteLogMetadataManager`."""
        request = convert.partition_delete_to_pb(metadata)
        await call_unary(self._stub.PutRemotePartitionDeleteMetadata, request)

    async def list_partition_deletions(self) -> AsyncIterator[RemotePartitionDeleteMetadata]:
        """See `RemoteLogMetadataManager`."""
        pages = call_stream(
            self._stub.ListPartitionDeletions,
            pb.ListPartitionDeletionsRequest(),
            deadline_s=self._connection.config.stream_deadline_s,
        )
        async with aclosing(pages):
            async for page in pages:
                for deletion in page.partitions:
                    yield convert.partition_delete_from_pb(deletion)

    def list_remote_log_segments(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int | None = None
    ) -> AsyncIterator[RemoteLogSegmentMetadata]:
        """See `RemoteLogMetadataManager`."""
        request = pb.ListRemoteLogSegmentsRequest(
            topic_id_partition=convert.tip_to_pb(topic_id_partition), leader_epoch=leader_epoch
        )
        return self._listed(request)

    async def list_remote_log_segments_from(
        self, topic_id_partition: TopicIdPartition, start_offset: int
    ) -> AsyncIterator[RemoteLogSegmentMetadata]:
        """See `SegmentListings`."""
        request = pb.ListRemoteLogSegmentsRequest(
            topic_id_partition=convert.tip_to_pb(topic_id_partition), from_start_offset=start_offset
        )
        async with aclosing(self._listed(request)) as listing:
            async for segment in listing:
                if segment.start_offset >= start_offset:  # older services list all
                    yield segment

    async def _listed(
        self, request: pb.ListRemoteLogSegmentsRequest
    ) -> AsyncGenerator[RemoteLogSegmentMetadata, None]:
        pages = call_stream(
            self._stub.ListRemoteLogSegments,
            request,
            deadline_s=self._connection.config.stream_deadline_s,
        )
        async with aclosing(pages):
            async for page in pages:
                for segment in page.segments:
                    yield convert.segment_metadata_from_pb(segment)

    async def remote_log_size(self, topic_id_partition: TopicIdPartition, leader_epoch: int) -> int:
        """See `RemoteLogMetadataManager`."""
        request = pb.GetRemoteLogSizeRequest(
            topic_id_partition=convert.tip_to_pb(topic_id_partition), leader_epoch=leader_epoch
        )
        return (await call_unary(self._stub.GetRemoteLogSize, request)).size_bytes

    async def next_segment_with_txn_index(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """See `RemoteLogMetadataManager`."""
        request = pb.GetNextSegmentWithTxnIndexRequest(
            topic_id_partition=convert.tip_to_pb(topic_id_partition),
            leader_epoch=leader_epoch,
            offset=offset,
        )
        answer = await call_unary(self._stub.GetNextSegmentWithTxnIndex, request)
        if not answer.HasField("metadata"):
            return None
        return convert.segment_metadata_from_pb(answer.metadata)

    async def segment_run(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int, offset: int, max_bytes: int
    ) -> SegmentRun:
        """See `SegmentRuns`."""
        request = pb.GetSegmentRunRequest(
            topic_id_partition=convert.tip_to_pb(topic_id_partition),
            leader_epoch=leader_epoch,
            offset=offset,
            max_bytes=max_bytes,
        )
        try:
            answer = await call_unary(self._stub.GetSegmentRun, request)
        except InternalError as error:
            if not is_unimplemented(error):
                raise
            raise RunsUnsupportedError("the metadata service has no runs yet") from error
        return SegmentRun(
            segments=tuple(map(convert.segment_metadata_from_pb, answer.segments)),
            may_have_transactions=answer.may_have_transactions,
        )

    async def find_segment_for_timestamp(
        self,
        topic_id_partition: TopicIdPartition,
        lineage: Mapping[int, int],
        timestamp_ms: int,
        min_end_offset: int = 0,
    ) -> RemoteLogSegmentMetadata | None:
        """See `RemoteLogMetadataManager`."""
        request = pb.FindSegmentForTimestampRequest(
            topic_id_partition=convert.tip_to_pb(topic_id_partition),
            lineage=convert.lineage_to_pb(lineage),
            timestamp_ms=timestamp_ms,
            min_end_offset=min_end_offset,
        )
        answer = await call_unary(self._stub.FindSegmentForTimestamp, request)
        if not answer.HasField("metadata"):
            return None
        return convert.segment_metadata_from_pb(answer.metadata)

    async def list_retention_candidates(
        self,
        topic_id_partition: TopicIdPartition,
        lineage: Mapping[int, int],
        policy: RetentionPolicy,
        now_ms: int,
    ) -> RetentionPlan:
        """See `RemoteLogMetadataManager`."""
        request = pb.ListRetentionCandidatesRequest(
            topic_id_partition=convert.tip_to_pb(topic_id_partition),
            lineage=convert.lineage_to_pb(lineage),
            policy=convert.retention_policy_to_pb(policy),
            now_ms=now_ms,
        )
        answer = await call_unary(self._stub.ListRetentionCandidates, request)
        return convert.retention_plan_from_pb(answer)

    async def partition_summaries(
        self, partitions: Sequence[tuple[TopicIdPartition, int | None]]
    ) -> list[PartitionSummary | None]:
        """See `PartitionSummaries`."""
        request = summaries_request(partitions)
        try:
            answer = await call_unary(self._stub.SummarizePartitions, request)
        except InternalError as error:
            if not is_unimplemented(error):
                raise
            raise SummariesUnsupportedError("the metadata service has no summaries yet") from error
        return summaries_from_pb(answer, len(partitions))

    async def pause_tasks(
        self, targets: Collection[PauseTarget], *, paused_by: str = "", reason: str = ""
    ) -> None:
        """See `TaskPauses`."""
        await update_pauses(self._stub, targets, resume=False, paused_by=paused_by, reason=reason)

    async def resume_tasks(self, targets: Collection[PauseTarget]) -> None:
        """See `TaskPauses`."""
        await update_pauses(self._stub, targets, resume=True)

    def list_task_pauses(self) -> AsyncIterator[TaskPause]:
        """See `TaskPauses`."""
        return listed_pauses(self._stub, self._connection.config.deadline_s)

    async def earliest_log_offset(self, topic_id_partition: TopicIdPartition) -> int | None:
        """See `RemoteLogMetadataManager`."""
        request = pb.GetEarliestLogOffsetRequest(
            topic_id_partition=convert.tip_to_pb(topic_id_partition)
        )
        answer = await call_unary(self._stub.GetEarliestLogOffset, request)
        return answer.offset if answer.HasField("offset") else None

    async def update_earliest_log_offset(
        self, topic_id_partition: TopicIdPartition, offset: int, leader_epoch: int
    ) -> None:
        """See `RemoteLogMetadataManager`."""
        request = pb.UpdateEarliestLogOffsetRequest(
            topic_id_partition=convert.tip_to_pb(topic_id_partition),
            offset=offset,
            leader_epoch=leader_epoch,
        )
        await call_unary(self._stub.UpdateEarliestLogOffset, request)

    async def on_partition_leadership_changes(
        self, leaders: Mapping[TopicIdPartition, int], followers: Collection[TopicIdPartition]
    ) -> None:
        """See `RemoteLogMetadataManager`."""
        for request in leadership_requests(leaders, followers):
            await call_unary(self._stub.OnPartitionLeadershipChanges, request)

    async def on_stop_partitions(self, partitions: Collection[TopicIdPartition]) -> None:
        """See `RemoteLogMetadataManager`."""
        for request in stop_requests(partitions):
            await call_unary(self._stub.OnStopPartitions, request)

    async def is_ready(self, topic_id_partition: TopicIdPartition) -> bool:
        """See `RemoteLogMetadataManager`."""
        request = pb.IsReadyRequest(topic_id_partition=convert.tip_to_pb(topic_id_partition))
        return (await call_unary(self._stub.IsReady, request)).ready

    async def watch_partition(
        self, topic_id_partition: TopicIdPartition, from_version: int = 0
    ) -> AsyncIterator[PartitionChange]:
        """See `RemoteLogMetadataManager`. A watch that breaks after a change goes on at another replica from there."""
        version = from_version
        while True:
            moved = False
            request = pb.WatchPartitionRequest(
                topic_id_partition=convert.tip_to_pb(topic_id_partition), from_version=version
            )
            answers = call_stream(self._stub.WatchPartition, request, deadline_s=FOREVER)
            try:
                async with aclosing(answers):
                    async for answer in answers:
                        change = convert.partition_change_from_pb(answer)
                        version, moved = change.version, True
                        yield change
                raise RemoteStorageUnavailableError("the watch ended", reason=ErrorReason.NOT_READY)
            except UnavailableError as error:
                if not moved:
                    raise
                logger.info("watch_resumed", version=version, error=error.message)

    async def segment_history(self, segment_id: RemoteLogSegmentId) -> list[SegmentEvent]:
        """See `RemoteLogMetadataManager`."""
        request = pb.GetSegmentHistoryRequest(segment_id=convert.segment_id_to_pb(segment_id))
        answer = await call_unary(self._stub.GetSegmentHistory, request)
        return [convert.segment_event_from_pb(event, segment_id) for event in answer.events]

    async def close(self) -> None:
        """See `RemoteLogMetadataManager`."""
        await self._connection.close()

    @property
    def _stub(self) -> RemoteLogMetadataServiceAsyncStub:
        if self._made_stub is None:
            raise InvalidConfigurationError("not configured yet; call configure first")
        return self._made_stub
