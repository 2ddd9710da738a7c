import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from fixtures.otlp import OtlpCollector, SpanNode

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT_ID = "b7ad6b7169203331"


@asynccontextmanager
async def _process(name: str, script: Path, env: dict[str, str]) -> AsyncIterator[int]:
    """Runs a service, yields its port, ends it with SIGTERM."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(script),
        name,
        env={**os.environ, **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            yield int(await process.stdout.readline())
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _by_name(tree: SpanNode) -> dict[tuple[str, str, str], SpanNode]:
    return {(node.span.service, node.span.kind, node.span.name): node for node in tree.walk()}


async def test_a_trace_crosses_services_and_streams(
    otlp_collector: OtlpCollector, tmp_path: Path
) -> None:
    script = tmp_path / "traced.py"
    script.write_text(_SERVICE)
    env = {
        "AQUIFER_TRACED_TELEMETRY__OTLP_ENDPOINT": otlp_collector.endpoint,
        "AQUIFER_TRACED_TELEMETRY__METRICS_INTERVAL_S": "0.5",
        "AQUIFER_TRACED_TELEMETRY__INSTANCE_ID": "one",
    }
    async with _process("back", script, env) as back:
        front_env = {**env, "AQUIFER_TRACED_BACK": f"127.0.0.1:{back}"}
        async with (
            _process("front", script, front_env) as port,
            grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        ):
            relay: Any = channel.unary_unary("/test.Traced/Relay")
            answer = await relay(
                b"x",
                timeout=60,
                metadata=(
                    ("traceparent", f"00-{TRACE_ID}-{PARENT_ID}-01"),
                    ("x-request-id", "request-7"),
                ),
            )
    assert answer == b"3 request-7"

    tree = await otlp_collector.wait_for_tree(
        lambda root: root.span.trace_id == TRACE_ID and len(list(root.walk())) == 3
    )
    assert tree.span.parent_id == PARENT_ID
    assert otlp_collector.edges(TRACE_ID) == {("aquifer-front", "aquifer-back")}
    spans = _by_name(tree)
    served = spans["aquifer-front", "SERVER", "test.Traced/Relay"].span
    called = spans["aquifer-front", "CLIENT", "test.Traced/Count"].span
    streamed = spans["aquifer-back", "SERVER", "test.Traced/Count"].span
    assert streamed.parent_id == called.span_id
    assert called.parent_id == served.span_id
    assert served.attributes["rpc.system"] == "grpc"
    assert served.attributes["rpc.service"] == "test.Traced"
    assert served.attributes["rpc.method"] == "Relay"
    assert served.attributes["rpc.grpc.status_code"] == 0
    assert streamed.attributes["aquifer.request_id"] == "request-7"
    assert streamed.instance == "one"
    # Open to the end of the iteration, which takes the back service 3 x 50 ms.
    assert called.end_ns - called.start_ns > 150_000_000
    assert streamed.end_ns - streamed.start_ns > 150_000_000


async def test_failures_are_marked_and_metrics_are_sent(
    otlp_collector: OtlpCollector, tmp_path: Path
) -> None:
    script = tmp_path / "traced.py"
    script.write_text(_SERVICE)
    env = {"AQUIFER_TRACED_TELEMETRY__OTLP_ENDPOINT": otlp_collector.endpoint}
    async with (
        _process("back", script, env) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        fail: Any = channel.unary_unary("/test.Traced/Fail")
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await fail(b"x", timeout=60)
    assert raised.value.code() is grpc.StatusCode.DATA_LOSS

    await otlp_collector.wait_for_spans(lambda spans: spans)
    [failed] = [span for span in otlp_collector.spans if span.name == "test.Traced/Fail"]
    assert failed.failed
    assert failed.attributes["aquifer.error_reason"] == "CHECKSUM_MISMATCH"
    durations = [
        point
        for point in otlp_collector.points
        if point.name == "aquifer.rpc.server.duration"
        and point.attributes["rpc.method"] == "/test.Traced/Fail"
    ]
    assert durations[-1].value == 1
    assert durations[-1].attributes["aquifer.rpc.code"] == "DATA_LOSS"


async def test_a_collector_that_is_gone_does_not_hold_the_exit(tmp_path: Path) -> None:
    script = tmp_path / "traced.py"
    script.write_text(_SERVICE)
    env = {
        "AQUIFER_TRACED_TELEMETRY__OTLP_ENDPOINT": "http://127.0.0.1:1",
        "AQUIFER_TRACED_TELEMETRY__EXPORT_TIMEOUT_S": "0.5",
    }
    async with (
        _process("back", script, env) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        count: Any = channel.unary_stream("/test.Traced/Count")
        assert len([answer async for answer in count(b"x", timeout=60)]) == 3
        ended = asyncio.get_running_loop().time()

    assert asyncio.get_running_loop().time() - ended < 10


_SERVICE = '''
import asyncio, os, sys
import grpc
from aquifer_core.errors import CorruptSegmentError
from aquifer_rpc.calls import call_stream
from aquifer_rpc.channel import connect
from aquifer_rpc.request_context import REQUEST_ID
from aquifer_rpc.server import GrpcServer
from aquifer_rpc.service import run_service
from aquifer_rpc.settings import ServiceSettings

NAME = sys.argv[1]


class Settings(ServiceSettings):
    """Settings of the test service."""

    back: str = ""


async def count(request, context):
    for _ in range(3):
        await asyncio.sleep(0.05)
        yield REQUEST_ID.get().encode()


async def fail(request, context):
    raise CorruptSegmentError("damaged")


async def main(settings):
    async def relay(request, context):
        async with connect(settings.back) as channel:
            got = [part async for part in call_stream(channel.unary_stream("/test.Traced/Count"), b"x")]
        return f"{len(got)} {got[0].decode()}".encode()

    def add(_servicer, grpc_server):
        handlers = {
            "Relay": grpc.unary_unary_rpc_method_handler(relay),
            "Count": grpc.unary_stream_rpc_method_handler(count),
            "Fail": grpc.unary_unary_rpc_method_handler(fail),
        }
        grpc_server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("test.Traced", handlers),)
        )

    server = GrpcServer(settings.grpc, name=NAME)
    server.add(add, None)
    async with server:
        print(server.port, flush=True)
        await server.run_until_signal()


run_service(f"aquifer-{NAME}", Settings, "AQUIFER_TRACED_", main, argv=[])
'''
