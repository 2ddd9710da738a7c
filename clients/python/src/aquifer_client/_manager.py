"""The manager, for programs that look at tiering, steer it, or read the cold part of a log."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Self

from aquifer.manager.v1 import remote_log_manager_service_pb2 as pb
from aquifer.manager.v1.remote_log_manager_service_pb2_grpc import RemoteLogManagerServiceStub
from aquifer_core.errors import InternalError
from aquifer_core.ids import TopicIdPartition
from aquifer_core.segment import IsolationLevel
from aquifer_rpc import convert
from aquifer_rpc.calls import FOREVER, call_stream, call_unary
from aquifer_rpc.channel import Channel, connect

from aquifer_client._manager_values import (
    FoundOffset,
    PartitionState,
    RemoteFetchPlan,
    TaskAction,
    TaskType,
    action_from_pb,
    partition_state_from_pb,
    plan_from_pb,
)

if TYPE_CHECKING:
    from aquifer.manager.v1.remote_log_manager_service_pb2_grpc import (
        RemoteLogManagerServiceAsyncStub,
    )
    from aquifer_rpc.settings import GrpcClientSettings

_RUN_DEADLINE_S = 600.0


class RemoteLogManagerClient:
    """Asks one manager, or any of several replicas; an async context manager.

    What a broker announces about itself (registration, leadership, settings) is not here: it belongs to the broker.
    Every method raises the errors that the contract names, and `UnavailableError` when no manager answers.
    """

    def __init__(self, channel: Channel) -> None:
        """Takes a channel over and closes it at the end."""
        self._channel = channel
        self._stub: RemoteLogManagerServiceAsyncStub = RemoteLogManagerServiceStub(channel)

    @classmethod
    def connect(
        cls, endpoints: str | Sequence[str], *, settings: GrpcClientSettings | None = None
    ) -> Self:
        """A client of the managers at `host:port`, several as a list or separated by commas."""
        return cls(connect(endpoints, settings=settings))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the channel; idempotent."""
        await self._channel.close()

    async def describe_partition(self, topic_id_partition: TopicIdPartition) -> PartitionState:
        """State of one partition.

        Raises:
            RemoteResourceNotFoundError: not registered with this manager.
        """
        request = pb.DescribePartitionRequest(
            topic_id_partition=convert.tip_to_pb(topic_id_partition)
        )
        answer = await call_unary(self._stub.DescribePartition, request)
        return partition_state_from_pb(answer.partition)

    async def list_partitions(self, topic: str = "") -> AsyncIterator[PartitionState]:
        """All partitions registered with the manager; with `topic` only those of it."""
        pages = call_stream(self._stub.ListPartitions, pb.ListPartitionsRequest(topic=topic))
        async with aclosing(pages):
            async for page in pages:
                for partition in page.partitions:
                    yield partition_state_from_pb(partition)

    async def watch_partitions(self, topic: str = "") -> AsyncIterator[PartitionState]:
        """All partitions, then each one whenever it changes, without end; raises when the watch breaks."""
        pages = call_stream(
            self._stub.WatchPartitions,
            pb.WatchPartitionsRequest(topic=topic),
            deadline_s=FOREVER,
        )
        async with aclosing(pages):
            async for page in pages:
                for partition in page.partitions:
                    yield partition_state_from_pb(partition)

    async def run_task(
        self,
        topic_id_partition: TopicIdPartition,
        task: TaskType,
        *,
        dry_run: bool = False,
        deadline_s: float = _RUN_DEADLINE_S,
    ) -> tuple[TaskAction, ...]:
        """Runs a task now and returns what it did when the run has ended; not repeated by itself.

        Args:
            topic_id_partition: whose task.
            task: which one.
            dry_run: say what would be done, change nothing; for expirations and scrubs.
            deadline_s: how long the run may take.

        Raises:
            RemoteResourceNotFoundError: not registered with this manager.
            AquiferError: what the run failed with.
        """
        request = pb.RunTaskRequest(
            topic_id_partition=convert.tip_to_pb(topic_id_partition),
            type=pb.TaskType.ValueType(task),
            dry_run=dry_run,
        )
        answer = await call_unary(self._stub.RunTask, request, deadline_s=deadline_s, retry=False)
        return tuple(map(action_from_pb, answer.actions))

    async def pause_tasks(
        self,
        partitions: Collection[TopicIdPartition] = (),
        topics: Collection[str] = (),
        *,
        paused_by: str = "",
        reason: str = "",
    ) -> bool:
        """Stops copies and expirations until they are resumed; runs in flight complete. Idempotent.

        Args:
            partitions: to pause.
            topics: to pause as a whole, by name.
            paused_by: who asks for it, for people.
            reason: why, for people.

        Returns:
            Whether metadata has it, so that it holds at all managers and after restarts; otherwise one manager remembers it.
        """
        request = pb.PauseTasksRequest(
            partitions=map(convert.tip_to_pb, partitions),
            topics=topics,
            paused_by=paused_by,
            reason=reason,
        )
        return (await call_unary(self._stub.PauseTasks, request)).durable

    async def resume_tasks(
        self, partitions: Collection[TopicIdPartition] = (), topics: Collection[str] = ()
    ) -> bool:
        """Ends a pause. Idempotent. Answers whether metadata has it, as for pauses."""
        request = pb.ResumeTasksRequest(
            partitions=map(convert.tip_to_pb, partitions), topics=topics
        )
        return (await call_unary(self._stub.ResumeTasks, request)).durable

    async def plan_fetch(
        self,
        topic_id_partition: TopicIdPartition,
        *,
        leader_epoch: int,
        fetch_offset: int,
        max_bytes: int,
        lineage: Mapping[int, int],
        min_one_batch: bool = True,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> RemoteFetchPlan:
        """What `fetch` would read, without the data.

        Raises:
            OffsetOutOfRangeError, RemoteResourceNotFoundError, QuotaExceededError: as `fetch`.
        """
        request = pb.PlanFetchRequest(
            topic_id_partition=convert.tip_to_pb(topic_id_partition),
            leader_epoch=leader_epoch,
            fetch_offset=fetch_offset,
            max_bytes=max_bytes,
            min_one_batch=min_one_batch,
            isolation_level=convert.isolation_to_pb(isolation),
            lineage=convert.lineage_to_pb(lineage),
        )
        answer = await call_unary(
            self._stub.PlanFetch, request, affinity=str(topic_id_partition).encode()
        )
        return plan_from_pb(answer.plan)

    async def fetch(
        self,
        topic_id_partition: TopicIdPartition,
        *,
        leader_epoch: int,
        fetch_offset: int,
        max_bytes: int,
        lineage: Mapping[int, int],
        min_one_batch: bool = True,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> AsyncGenerator[bytes, None]:
        """Record batches of the cold part, from the one that holds the offset; the pieces together are whole batches.

        Args:
            topic_id_partition: the partition.
            leader_epoch: that the lineage has for the offset.
            fetch_offset: first offset wanted.
            max_bytes: most bytes to return.
            lineage: leader epoch -> start offset, of the leader.
            min_one_batch: return the first batch even when it is larger.
            isolation: what is seen of transactions; the records of aborted ones are in the bytes all the same.

        Raises:
            OffsetOutOfRangeError: the offset is not remote.
            RemoteResourceNotFoundError: the segment was deleted meanwhile.
            QuotaExceededError: `retry_after_ms` says when to come back.
            CorruptDataError: stored bytes are damaged.
        """
        request = pb.FetchRequest(
            topic_id_partition=convert.tip_to_pb(topic_id_partition),
            leader_epoch=leader_epoch,
            fetch_offset=fetch_offset,
            max_bytes=max_bytes,
            min_one_batch=min_one_batch,
            isolation_level=convert.isolation_to_pb(isolation),
            lineage=convert.lineage_to_pb(lineage),
        )
        answers = call_stream(self._stub.Fetch, request, affinity=str(topic_id_partition).encode())
        async with aclosing(answers):
            first = await anext(answers, None)
            if first is None or first.WhichOneof("message") != "plan":
                raise InternalError("the first message of a fetch is not its plan")
            async for answer in answers:
                yield answer.data

    async def find_offset_for_timestamp(
        self,
        topic_id_partition: TopicIdPartition,
        *,
        lineage: Mapping[int, int],
        timestamp_ms: int,
        log_start_offset: int,
        local_log_start_offset: int,
    ) -> FoundOffset | None:
        """The first remote record at or after a timestamp; None when none is remote, and the local log is to be searched.

        Raises:
            QuotaExceededError: too many reads wait; `retry_after_ms` says when to come back.
        """
        request = pb.FindOffsetForTimestampRequest(
            topic_id_partition=convert.tip_to_pb(topic_id_partition),
            lineage=convert.lineage_to_pb(lineage),
            timestamp_ms=timestamp_ms,
            log_start_offset=log_start_offset,
            local_log_start_offset=local_log_start_offset,
        )
        answer = await call_unary(self._stub.FindOffsetForTimestamp, request)
        if not answer.HasField("offset"):
            return None
        return FoundOffset(
            offset=answer.offset,
            timestamp_ms=answer.timestamp_ms,
            leader_epoch=answer.leader_epoch,
        )
