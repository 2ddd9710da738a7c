from typing import Any

import grpc.aio
import pytest
from aquifer.storage.v1 import remote_storage_service_pb2 as pb
from aquifer.storage.v1 import remote_storage_service_pb2_grpc as pb_grpc
from aquifer_core.errors import PreconditionError
from aquifer_rpc.request_context import REQUEST_ID
from fixtures.scripted_storage import ScriptedStorage, serving


async def _id_of_answer(given: str | None, *, fail: bool = False) -> tuple[str, str]:
    """The request id that the handler saw, and the one in the trailers."""
    seen = []

    async def describe(request: Any, context: Any) -> Any:
        seen.append(REQUEST_ID.get())
        if fail:
            raise PreconditionError("no")
        return pb.DescribeSegmentResponse()

    async with (
        serving(ScriptedStorage(describe=describe)) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        call = pb_grpc.RemoteStorageServiceStub(channel).DescribeSegment(
            pb.DescribeSegmentRequest(),
            timeout=60,
            metadata=() if given is None else (("x-request-id", given),),
        )
        code = await call.code()
        assert (code is grpc.StatusCode.OK) is not fail
        trailers = dict(await call.trailing_metadata())
    return seen[0], str(trailers["x-request-id"])


@pytest.mark.parametrize("fail", [False, True], ids=["answered", "failed"])
async def test_a_request_id_is_taken_over_and_sent_back(fail: bool) -> None:
    assert await _id_of_answer("request-7", fail=fail) == ("request-7", "request-7")


@pytest.mark.parametrize("given", [None, "", "a b", "x" * 129], ids=["none", "", "blank", "long"])
async def test_without_a_usable_request_id_one_is_made(given: str | None) -> None:
    seen, sent_back = await _id_of_answer(given)

    assert seen == sent_back
    assert len(seen) == 32
