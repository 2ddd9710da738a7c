"""BrokerLogService: converts, calls, converts back."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc.aio
from aquifer.broker.v1 import broker_log_service_pb2 as pb
from aquifer.broker.v1.broker_log_service_pb2_grpc import BrokerLogServiceServicer
from aquifer_core.segment import CopyResult
from aquifer_rpc import convert

from aquifer_broker.tiering.broker_log_service import BrokerLogs, LogDescription, LogQuery

__all__ = ["BrokerLogServicer"]

Context = grpc.aio.ServicerContext[Any, Any]


class BrokerLogServicer(BrokerLogServiceServicer):
    """Serves `aquifer.broker.v1`."""

    def __init__(self, logs: BrokerLogs) -> None:
        self._logs = logs

    async def DescribeLogs(
        self, request: pb.DescribeLogsRequest, context: Context
    ) -> pb.DescribeLogsResponse:
        """See the contract."""
        del context
        queries = [
            LogQuery(
                topic_id_partition=convert.tip_from_pb(each.topic_id_partition),
                segments_from_offset=each.segments_from_offset,
                max_segments=each.max_segments,
            )
            for each in request.logs
        ]
        return pb.DescribeLogsResponse(
            logs=[_description_to_pb(query, self._logs.describe(query)) for query in queries]
        )

    async def CopySegment(
        self, request: pb.CopySegmentRequest, context: Context
    ) -> AsyncIterator[pb.CopySegmentResponse]:
        """See the contract."""
        del context
        metadata = convert.segment_metadata_from_pb(
            convert.required(request, "metadata", request.metadata)
        )
        steps = self._logs.copy_segment(metadata, request.leader_epoch)
        async with aclosing(steps):
            async for step in steps:
                yield _step_to_pb(step, metadata.segment_size_bytes)

    async def UpdateRemoteLogOffsets(
        self, request: pb.UpdateRemoteLogOffsetsRequest, context: Context
    ) -> pb.UpdateRemoteLogOffsetsResponse:
        """See the contract."""
        del context
        log_start_offset = await self._logs.update_remote_offsets(
            convert.tip_from_pb(request.topic_id_partition),
            request.leader_epoch,
            log_start_offset=(
                request.log_start_offset if request.HasField("log_start_offset") else None
            ),
            highest_remote_offset=(
                request.highest_remote_offset if request.HasField("highest_remote_offset") else None
            ),
        )
        return pb.UpdateRemoteLogOffsetsResponse(log_start_offset=log_start_offset)

    async def RollSegment(
        self, request: pb.RollSegmentRequest, context: Context
    ) -> pb.RollSegmentResponse:
        """See the contract."""
        del context
        base_offset = await self._logs.roll_segment(
            convert.tip_from_pb(request.topic_id_partition), request.leader_epoch
        )
        return pb.RollSegmentResponse(active_base_offset=base_offset)


def _step_to_pb(step: int | CopyResult, size_bytes: int) -> pb.CopySegmentResponse:
    if isinstance(step, int):
        return pb.CopySegmentResponse(sent_bytes=step)
    return pb.CopySegmentResponse(
        sent_bytes=size_bytes,
        result=pb.CopyResult(
            custom_metadata=step.custom_metadata,
            stored_bytes=step.stored_bytes,
            remote_log_index=step.remote_log_index,
        ),
    )


def _description_to_pb(query: LogQuery, log: LogDescription | None) -> pb.LogDescription:
    tip = convert.tip_to_pb(query.topic_id_partition)
    if log is None:
        return pb.LogDescription(topic_id_partition=tip, missing=True)
    offsets = log.offsets
    return pb.LogDescription(
        topic_id_partition=tip,
        leader=log.is_leader,
        leader_epoch=log.leader_epoch,
        log_start_offset=offsets.log_start_offset,
        local_log_start_offset=offsets.local_log_start_offset,
        last_stable_offset=offsets.last_stable_offset,
        high_watermark=offsets.high_watermark,
        log_end_offset=offsets.log_end_offset,
        highest_remote_offset=offsets.highest_offset_in_remote_storage,
        leader_epochs=convert.lineage_to_pb(
            {entry.epoch: entry.start_offset for entry in log.leader_epochs}
        ),
        segments=[
            pb.RolledSegment(
                base_offset=segment.base_offset,
                end_offset=segment.end_offset,
                size_bytes=segment.size_bytes,
                max_timestamp_ms=segment.max_timestamp_ms,
                has_aborted_transactions=segment.has_transactions,
            )
            for segment in log.segments
        ],
        local_only_bytes=log.local_only_bytes,
        local_bytes=log.local_bytes,
        local_segments=log.local_segments,
    )
