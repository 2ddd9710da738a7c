"""Consumers close streams early all the time: it is nothing to be alarmed about."""

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import structlog
from aquifer.storage.v1 import remote_storage_service_pb2 as pb
from aquifer.storage.v1 import remote_storage_service_pb2_grpc as pb_grpc
from fixtures.polling import eventually
from fixtures.scripted_storage import ScriptedStorage, serving

_CALLS = 60


async def test_a_stream_that_is_closed_early_is_no_error() -> None:
    async def fetch(request: Any, context: Any) -> AsyncIterator[Any]:
        while True:
            yield pb.FetchLogSegmentResponse(data=b"x" * 1_000_000)

    with structlog.testing.capture_logs() as lines:
        async with (
            serving(ScriptedStorage(fetch=fetch)) as server,
            grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as raw,
        ):
            stub = pb_grpc.RemoteStorageServiceStub(raw)
            for _ in range(_CALLS):
                call = stub.FetchLogSegment(pb.FetchLogSegmentRequest())
                await call.read()
                call.cancel()
            await eventually(lambda: len(_codes(lines)) == _CALLS, timeout_s=60)

    assert set(_codes(lines)) == {"CANCELLED"}


def _codes(lines: list[Any]) -> list[str]:
    return [line["code"] for line in lines if line["event"] == "rpc_served"]
