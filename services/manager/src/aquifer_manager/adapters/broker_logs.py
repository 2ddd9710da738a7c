"""The logs of brokers over gRPC."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Final

from aquifer.broker.v1 import broker_log_service_pb2 as pb
from aquifer.broker.v1.broker_log_service_pb2_grpc import BrokerLogServiceStub
from aquifer_core.errors import (
    DeadlineExceededError,
    ErrorReason,
    InternalError,
    UnavailableError,
)
from aquifer_core.ids import TopicIdPartition
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.segment import CopyResult, RemoteLogSegmentMetadata
from aquifer_rpc import convert
from aquifer_rpc.calls import call_stream, call_unary
from aquifer_rpc.channel import Channel, connect
from aquifer_rpc.settings import GrpcClientSettings

from aquifer_manager.domain.ports import BrokerLogs, LogDescription, LogQuery, RolledSegment

if TYPE_CHECKING:
    # Generated stubs declare the asynchronous class for type checkers alone.
    from aquifer.broker.v1.broker_log_service_pb2_grpc import BrokerLogServiceAsyncStub

__all__ = ["GrpcBrokerConnections", "GrpcBrokerLogs"]

_SILENCE_S: Final = 2.0


class GrpcBrokerLogs:
    """The BrokerLogService of one broker; implements `BrokerLogs`."""

    def __init__(
        self,
        channel: Channel,
        *,
        call_timeout_s: float,
        copy_timeout_s: float,
        copy_stall_timeout_s: float,
    ) -> None:
        self.channel = channel
        self._stub: BrokerLogServiceAsyncStub = BrokerLogServiceStub(channel)
        self._call_timeout_s = call_timeout_s
        self._copy_timeout_s = copy_timeout_s
        self._copy_stall_timeout_s = copy_stall_timeout_s
        self._silence = _Silence()

    async def describe_logs(self, queries: Sequence[LogQuery]) -> list[LogDescription | None]:
        """See `BrokerLogs`. A broker that just did not answer is not asked again for a moment (PEER_UNAVAILABLE)."""
        request = pb.DescribeLogsRequest(
            logs=[
                pb.DescribeLog(
                    topic_id_partition=convert.tip_to_pb(query.topic_id_partition),
                    segments_from_offset=query.segments_from_offset,
                    max_segments=query.max_segments,
                )
                for query in queries
            ]
        )
        with self._silence.watched():
            answer = await call_unary(
                self._stub.DescribeLogs, request, deadline_s=self._call_timeout_s
            )
        if len(answer.logs) != len(queries):
            raise InternalError(f"{len(queries)} logs were asked for, {len(answer.logs)} came")
        return [_log_from_pb(log) for log in answer.logs]

    async def copy_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        leader_epoch: int,
        *,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> CopyResult:
        """See `BrokerLogs`. An upload that sends nothing for a while is given up before its deadline.

        Raises:
            DeadlineExceededError: no progress within the stall timeout, or no end within the copy timeout.
        """
        request = pb.CopySegmentRequest(
            leader_epoch=leader_epoch, metadata=convert.segment_metadata_to_pb(metadata)
        )
        sent_bytes = -1
        answers = call_stream(
            self._stub.CopySegment, request, deadline_s=self._copy_timeout_s, retry=False
        )
        try:
            async with asyncio.timeout(self._copy_stall_timeout_s) as stall, aclosing(answers):
                async for answer in answers:
                    if answer.HasField("result"):
                        return _copy_result_from_pb(answer.result)
                    if answer.sent_bytes > sent_bytes:
                        sent_bytes = answer.sent_bytes
                        on_progress(sent_bytes)
                        loop = asyncio.get_running_loop()
                        stall.reschedule(loop.time() + self._copy_stall_timeout_s)
        except TimeoutError as error:
            raise DeadlineExceededError(
                f"the upload of segment {metadata.segment_id.id} stopped at {max(sent_bytes, 0)} of "
                f"{metadata.segment_size_bytes} bytes for {self._copy_stall_timeout_s:g} s"
            ) from error
        raise InternalError(
            f"the upload of segment {metadata.segment_id.id} ended without a result"
        )

    async def update_remote_log_offsets(
        self,
        topic_id_partition: TopicIdPartition,
        leader_epoch: int,
        *,
        log_start_offset: int | None = None,
        highest_remote_offset: int | None = None,
    ) -> int:
        """See `BrokerLogs`."""
        request = pb.UpdateRemoteLogOffsetsRequest(
            topic_id_partition=convert.tip_to_pb(topic_id_partition),
            leader_epoch=leader_epoch,
            log_start_offset=log_start_offset,
            highest_remote_offset=highest_remote_offset,
        )
        answer = await call_unary(
            self._stub.UpdateRemoteLogOffsets, request, deadline_s=self._call_timeout_s
        )
        return answer.log_start_offset

    async def roll_segment(self, topic_id_partition: TopicIdPartition, leader_epoch: int) -> int:
        """See `BrokerLogs`."""
        request = pb.RollSegmentRequest(
            topic_id_partition=convert.tip_to_pb(topic_id_partition), leader_epoch=leader_epoch
        )
        answer = await call_unary(self._stub.RollSegment, request, deadline_s=self._call_timeout_s)
        return answer.active_base_offset


class _Silence:
    """Remembers that a broker did not answer.

    Every task begins by describing its log. Without this, the tasks of one frozen broker would wait for it one after the other and
    keep the slots from the tasks of all others. After a silence one call at a time finds out whether it is over.
    """

    def __init__(self) -> None:
        self._silent = False
        self._until_s = 0.0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Around a call.

        Raises:
            UnavailableError: the broker was silent a moment ago.
        """
        now_s = time.monotonic()
        if self._silent:
            if now_s < self._until_s:
                raise UnavailableError(
                    "the broker did not answer a moment ago",
                    reason=ErrorReason.PEER_UNAVAILABLE,
                    retry_after_ms=round((self._until_s - now_s) * 1000),
                )
            self._until_s = now_s + _SILENCE_S
        try:
            yield
        except (UnavailableError, DeadlineExceededError):
            self._silent = True
            self._until_s = time.monotonic() + _SILENCE_S
            raise
        self._silent = False


class GrpcBrokerConnections:
    """One channel per broker address; implements `BrokerConnections`."""

    def __init__(
        self,
        settings: GrpcClientSettings,
        *,
        call_timeout_s: float,
        copy_timeout_s: float,
        copy_stall_timeout_s: float,
    ) -> None:
        self._settings = settings
        self._call_timeout_s = call_timeout_s
        self._copy_timeout_s = copy_timeout_s
        self._copy_stall_timeout_s = copy_stall_timeout_s
        self._logs: dict[str, GrpcBrokerLogs] = {}

    def logs_at(self, address: str) -> BrokerLogs:
        """See `BrokerConnections`."""
        logs = self._logs.get(address)
        if logs is None:
            logs = self._logs[address] = GrpcBrokerLogs(
                connect(address, settings=self._settings),
                call_timeout_s=self._call_timeout_s,
                copy_timeout_s=self._copy_timeout_s,
                copy_stall_timeout_s=self._copy_stall_timeout_s,
            )
        return logs

    async def forget(self, address: str) -> None:
        """See `BrokerConnections`."""
        logs = self._logs.pop(address, None)
        if logs is not None:
            await logs.channel.close()

    async def close(self) -> None:
        """Closes every channel; idempotent."""
        for address in list(self._logs):
            await self.forget(address)


def _log_from_pb(log: pb.LogDescription) -> LogDescription | None:
    if log.missing:
        return None
    return LogDescription(
        topic_id_partition=convert.tip_from_pb(log.topic_id_partition),
        leader=log.leader,
        leader_epoch=log.leader_epoch,
        log_start_offset=log.log_start_offset,
        local_log_start_offset=log.local_log_start_offset,
        last_stable_offset=log.last_stable_offset,
        high_watermark=log.high_watermark,
        log_end_offset=log.log_end_offset,
        highest_remote_offset=log.highest_remote_offset,
        leader_epochs=tuple(
            LeaderEpochEntry(entry.epoch, entry.start_offset) for entry in log.leader_epochs
        ),
        segments=tuple(
            RolledSegment(
                base_offset=segment.base_offset,
                end_offset=segment.end_offset,
                size_bytes=segment.size_bytes,
                max_timestamp_ms=segment.max_timestamp_ms,
                has_aborted_transactions=segment.has_aborted_transactions,
            )
            for segment in log.segments
        ),
        local_only_bytes=log.local_only_bytes,
        local_bytes=log.local_bytes,
        local_segments=log.local_segments,
    )


def _copy_result_from_pb(result: pb.CopyResult) -> CopyResult:
    return CopyResult(
        custom_metadata=result.custom_metadata if result.HasField("custom_metadata") else None,
        stored_bytes=result.stored_bytes,
        log_sha256="",
        remote_log_index=result.remote_log_index if result.HasField("remote_log_index") else None,
    )
