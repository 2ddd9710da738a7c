"""Pauses of tasks at the metadata service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING

from aquifer.metadata.v1 import remote_log_metadata_service_pb2 as pb
from aquifer_core.errors import InternalError
from aquifer_core.task_pauses import PausesUnsupportedError, PauseTarget, TaskPause
from aquifer_rpc import convert
from aquifer_rpc.calls import call_stream, call_unary
from aquifer_rpc.errors import is_unimplemented

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aquifer.metadata.v1.remote_log_metadata_service_pb2_grpc import (
        RemoteLogMetadataServiceAsyncStub,
    )


async def update_pauses(
    stub: RemoteLogMetadataServiceAsyncStub,
    targets: Collection[PauseTarget],
    *,
    resume: bool,
    paused_by: str = "",
    reason: str = "",
) -> None:
    """See `TaskPauses.pause_tasks` and `resume_tasks`."""
    partitions, topics = convert.pause_targets_to_pb(targets)
    request = pb.UpdateTaskPausesRequest(
        partitions=partitions, topics=topics, resume=resume, paused_by=paused_by, reason=reason
    )
    with _services_are_upgraded_in_any_order():
        await call_unary(stub.UpdateTaskPauses, request)


async def listed_pauses(
    stub: RemoteLogMetadataServiceAsyncStub, deadline_s: float
) -> AsyncIterator[TaskPause]:
    """See `TaskPauses.list_task_pauses`."""
    with _services_are_upgraded_in_any_order():
        pages = call_stream(stub.ListTaskPauses, pb.ListTaskPausesRequest(), deadline_s=deadline_s)
        async with aclosing(pages):
            async for page in pages:
                for pause in page.pauses:
                    yield convert.task_pause_from_pb(pause)


@contextmanager
def _services_are_upgraded_in_any_order() -> Iterator[None]:
    try:
        yield
    except InternalError as error:
        if not is_unimplemented(error):
            raise
        raise PausesUnsupportedError("the metadata service keeps no pauses yet") from error
