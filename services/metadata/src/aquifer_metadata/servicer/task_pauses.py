"""The pauses of RemoteLogMetadataService: converts, calls, converts back."""

from collections.abc import AsyncIterator

from aquifer.metadata.v1 import remote_log_metadata_service_pb2 as pb
from aquifer_core.errors import PreconditionError
from aquifer_core.ports import RemoteLogMetadataManager
from aquifer_core.task_pauses import TaskPauses
from aquifer_rpc import convert

__all__ = ["pages_of_pauses", "update_pauses"]


async def update_pauses(
    manager: RemoteLogMetadataManager, request: pb.UpdateTaskPausesRequest
) -> None:
    """Pauses or resumes what a request names."""
    pauses = _pauses(manager)
    targets = convert.pause_targets_from_pb(request.partitions, request.topics)
    if request.resume:
        await pauses.resume_tasks(targets)
    else:
        await pauses.pause_tasks(targets, paused_by=request.paused_by, reason=request.reason)


async def pages_of_pauses(
    manager: RemoteLogMetadataManager, page_size: int
) -> AsyncIterator[pb.ListTaskPausesResponse]:
    """Everything that is paused."""
    page = pb.ListTaskPausesResponse()
    async for pause in _pauses(manager).list_task_pauses():
        page.pauses.append(convert.task_pause_to_pb(pause))
        if len(page.pauses) == page_size:
            yield page
            page = pb.ListTaskPausesResponse()
    if page.pauses:
        yield page


def _pauses(manager: RemoteLogMetadataManager) -> TaskPauses:
    if not isinstance(manager, TaskPauses):
        raise PreconditionError("the metadata behind this service keeps no pauses")
    return manager
