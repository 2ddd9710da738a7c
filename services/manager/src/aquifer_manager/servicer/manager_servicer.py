"""RemoteLogManagerService: converts, calls, converts back."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Final

import grpc.aio
from aquifer.manager.v1 import remote_log_manager_service_pb2 as pb
from aquifer.manager.v1 import remote_log_manager_service_pb2_grpc as pb_grpc
from aquifer_rpc import convert
from aquifer_rpc.large_messages import encoded_data

from aquifer_manager.domain.fetch import FetchService
from aquifer_manager.domain.fetch_plan import FetchPlan
from aquifer_manager.domain.offset_for_timestamp import OffsetForTimestamp
from aquifer_manager.domain.remote_log_manager import RemoteLogManager
from aquifer_manager.domain.tasks import TaskType
from aquifer_manager.servicer import messages
from aquifer_manager.servicer.explanations import explanation_to_pb

__all__ = ["RemoteLogManagerServicer"]

Context = grpc.aio.ServicerContext[Any, Any]

_DATA: Final = pb.FetchResponse.DATA_FIELD_NUMBER
_SHARE_FOR_RETRIES: Final = 0.8


class RemoteLogManagerServicer(pb_grpc.RemoteLogManagerServiceServicer):
    """Serves `aquifer.manager.v1`."""

    def __init__(
        self,
        manager: RemoteLogManager,
        fetches: FetchService,
        timestamps: OffsetForTimestamp,
        *,
        incarnation: str,
        default_timeout_s: float,
    ) -> None:
        """Prepares.

        Args:
            manager: registrations and tasks.
            fetches: remote reads.
            timestamps: offsets by time.
            incarnation: of this process.
            default_timeout_s: for callers that gave no deadline.
        """
        self._manager = manager
        self._fetches = fetches
        self._timestamps = timestamps
        self._incarnation = incarnation
        self._default_timeout_s = default_timeout_s

    async def RegisterBroker(
        self, request: pb.RegisterBrokerRequest, context: Context
    ) -> pb.RegisterBrokerResponse:
        """See the contract."""
        del context
        lease_ms = self._manager.register_broker(
            request.broker_id, request.incarnation, request.broker_log_address
        )
        return pb.RegisterBrokerResponse(lease_ms=lease_ms, manager_incarnation=self._incarnation)

    async def Heartbeat(
        self, request: pb.HeartbeatRequest, context: Context
    ) -> pb.HeartbeatResponse:
        """See the contract."""
        del context
        rolled = [convert.tip_from_pb(tip) for tip in request.rolled]
        lease_ms = self._manager.heartbeat(request.broker_id, request.incarnation, rolled)
        return pb.HeartbeatResponse(lease_ms=lease_ms)

    async def OnLeadershipChange(
        self, request: pb.OnLeadershipChangeRequest, context: Context
    ) -> pb.OnLeadershipChangeResponse:
        """See the contract."""
        del context
        self._manager.on_leadership_change(
            request.broker_id,
            request.incarnation,
            [messages.role_from_pb(role, "leaders") for role in request.leaders],
            [messages.role_from_pb(role, "followers") for role in request.followers],
        )
        return pb.OnLeadershipChangeResponse()

    async def OnTopicConfigChange(
        self, request: pb.OnTopicConfigChangeRequest, context: Context
    ) -> pb.OnTopicConfigChangeResponse:
        """See the contract."""
        del context
        self._manager.on_topic_config_change(
            {
                convert.uuid_from_pb(change.topic_id, "topic_id"): messages.topic_config_from_pb(
                    change.config
                )
                for change in request.topics
            }
        )
        return pb.OnTopicConfigChangeResponse()

    async def StopPartitions(
        self, request: pb.StopPartitionsRequest, context: Context
    ) -> pb.StopPartitionsResponse:
        """See the contract."""
        del context
        await self._manager.stop_partitions(
            request.broker_id,
            [convert.tip_from_pb(tip) for tip in request.partitions],
            delete_remote=request.delete_remote,
        )
        return pb.StopPartitionsResponse()

    async def Fetch(
        self, request: pb.FetchRequest, context: Context
    ) -> AsyncIterator[pb.FetchResponse]:
        """See the contract."""
        wanted = messages.fetch_request_from_pb(request)
        pieces = self._fetches.fetch(wanted, self._time_left_s(context))
        async with aclosing(pieces):
            async for piece in pieces:
                if isinstance(piece, FetchPlan):
                    yield pb.FetchResponse(plan=messages.fetch_plan_to_pb(piece))
                else:
                    for message in encoded_data(pb.FetchResponse, _DATA, piece):
                        yield message

    async def PlanFetch(
        self, request: pb.PlanFetchRequest, context: Context
    ) -> pb.PlanFetchResponse:
        """See the contract."""
        wanted = messages.plan_request_from_pb(request)
        plan = await self._fetches.plan(wanted, self._time_left_s(context))
        return pb.PlanFetchResponse(plan=messages.fetch_plan_to_pb(plan))

    async def FindOffsetForTimestamp(
        self, request: pb.FindOffsetForTimestampRequest, context: Context
    ) -> pb.FindOffsetForTimestampResponse:
        """See the contract."""
        query = messages.timestamp_query_from_pb(request)
        found = await self._timestamps.find(query, self._time_left_s(context))
        return messages.found_offset_to_pb(found)

    async def DeleteRecords(
        self, request: pb.DeleteRecordsRequest, context: Context
    ) -> pb.DeleteRecordsResponse:
        """See the contract."""
        del context
        self._manager.delete_records(messages.tip_of(request))
        return pb.DeleteRecordsResponse()

    async def DescribePartition(
        self, request: pb.DescribePartitionRequest, context: Context
    ) -> pb.DescribePartitionResponse:
        """See the contract."""
        del context
        view = await self._manager.describe_partition(messages.tip_of(request))
        return pb.DescribePartitionResponse(partition=messages.view_to_pb(view))

    async def ListPartitions(
        self, request: pb.ListPartitionsRequest, context: Context
    ) -> AsyncIterator[pb.ListPartitionsResponse]:
        """See the contract."""
        del context
        for page in messages.view_pages(self._manager.list_partitions(request.topic)):
            yield pb.ListPartitionsResponse(partitions=page)

    async def WatchPartitions(
        self, request: pb.WatchPartitionsRequest, context: Context
    ) -> AsyncIterator[pb.WatchPartitionsResponse]:
        """See the contract."""
        del context
        changes = self._manager.watch_partitions(request.topic)
        async with aclosing(changes):
            async for views in changes:
                for page in messages.view_pages(views):
                    yield pb.WatchPartitionsResponse(partitions=page)

    async def RunTask(self, request: pb.RunTaskRequest, context: Context) -> pb.RunTaskResponse:
        """See the contract."""
        del context
        tip, kind = messages.tip_of(request), messages.task_type_from_pb(request.type)
        if kind is TaskType.SCRUB:
            deep, heal = messages.scrub_options_from_pb(request)
            outcome = await self._manager.scrub(tip, deep=deep, heal=heal)
        else:
            outcome = await self._manager.run_task(tip, kind, dry_run=request.dry_run)
        return pb.RunTaskResponse(
            actions=[messages.action_to_pb(action) for action in outcome.actions],
            more=outcome.more_work,
        )

    async def Explain(self, request: pb.ExplainRequest, context: Context) -> pb.ExplainResponse:
        """See the contract."""
        del context
        explanations = await self._manager.explain(
            messages.tip_of(request),
            offset=request.offset if request.HasField("offset") else None,
            segment_id=convert.uuid_from_pb(request.segment_id, "segment_id")
            if request.HasField("segment_id")
            else None,
        )
        return pb.ExplainResponse(explanations=[explanation_to_pb(each) for each in explanations])

    async def PauseTasks(
        self, request: pb.PauseTasksRequest, context: Context
    ) -> pb.PauseTasksResponse:
        """See the contract."""
        del context
        durable = await self._manager.pause_tasks(
            convert.pause_targets_from_pb(request.partitions, request.topics),
            paused_by=request.paused_by,
            reason=request.reason,
        )
        return pb.PauseTasksResponse(durable=durable)

    async def ResumeTasks(
        self, request: pb.ResumeTasksRequest, context: Context
    ) -> pb.ResumeTasksResponse:
        """See the contract."""
        del context
        durable = await self._manager.resume_tasks(
            convert.pause_targets_from_pb(request.partitions, request.topics)
        )
        return pb.ResumeTasksResponse(durable=durable)

    def _time_left_s(self, context: Context) -> float:
        """For retries; the last of them must end in time to tell what it met."""
        remaining_s = context.time_remaining()
        return self._default_timeout_s if remaining_s is None else remaining_s * _SHARE_FOR_RETRIES
