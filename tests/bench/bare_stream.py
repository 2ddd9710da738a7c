"""What gRPC takes by itself for streams such as those of reads: the same message again and again, with no work behind it.

python -m bench.bare_stream ADDRESS     serves until it is terminated
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import uvloop
from aquifer_rpc.allocator import keep_freed_memory
from aquifer_rpc.flow_control import window_options
from aquifer_rpc.large_messages import MAX_DATA_BYTES
from aquifer_rpc.settings import GrpcClientSettings, GrpcServerSettings
from aquifer_standalone.ports import LOOPBACK, hold_ports

_SERVICE = "aquifer.bench.Bare"
_METHOD = "Stream"
_CALL_S = 60.0
_STOP_S = 10.0


class BareStream:
    """Reads from a server of nothing."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stream: Any = channel.unary_stream(f"/{_SERVICE}/{_METHOD}")

    async def read(self, total_bytes: int, call_bytes: int) -> None:
        """Reads so many bytes, in calls of so many, one after the other."""
        messages = call_bytes // MAX_DATA_BYTES
        for _ in range(total_bytes // call_bytes):
            pieces = self._stream(messages.to_bytes(4), timeout=_CALL_S)
            received = sum([len(piece) async for piece in pieces])
            if received != call_bytes:
                raise RuntimeError(f"{received} bytes came of {call_bytes}")


@asynccontextmanager
async def bare_stream() -> AsyncIterator[BareStream]:
    """A server in a process of its own, connected, with the flow control of the services."""
    (port,) = hold_ports(1)
    address = f"{LOOPBACK}:{port.number}"
    port.release()
    options = _options(GrpcClientSettings().stream_window_bytes)
    argv = (sys.executable, "-m", "bench.bare_stream", address)
    process = await asyncio.create_subprocess_exec(*argv)
    try:
        async with grpc.aio.insecure_channel(address, options=options) as channel:
            async with asyncio.timeout(_CALL_S):
                await channel.channel_ready()
            yield BareStream(channel)
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), _STOP_S)


def _options(window_bytes: int) -> list[tuple[str, int]]:
    return [("grpc.max_receive_message_length", 2 * MAX_DATA_BYTES), *window_options(window_bytes)]


async def _serve(address: str) -> None:
    message = bytes(MAX_DATA_BYTES)

    async def stream(request: bytes, _context: object) -> AsyncIterator[bytes]:
        for _ in range(int.from_bytes(request)):
            yield message

    server = grpc.aio.server(options=_options(GrpcServerSettings().stream_window_bytes))
    handlers: dict[str, Any] = {_METHOD: grpc.unary_stream_rpc_method_handler(stream)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(_SERVICE, handlers)])
    server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    keep_freed_memory()
    uvloop.run(_serve(sys.argv[1]))
