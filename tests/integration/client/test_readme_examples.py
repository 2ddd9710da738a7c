"""The examples of the client's README run as they stand there, but for the addresses."""

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from aquifer.metadata.v1 import remote_log_metadata_service_pb2 as facts_pb2
from aquifer.metadata.v1.remote_log_metadata_service_pb2_grpc import RemoteLogMetadataServiceStub
from aquifer_core.segment import RemoteLogSegmentState
from aquifer_rpc import convert
from aquifer_rpc.calls import call_stream
from aquifer_rpc.channel import connect
from fixtures.admin_suite import AdminSuite
from fixtures.polling import eventually

README = Path(__file__).parents[3] / "clients" / "python" / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


async def run(example: str, suite: AdminSuite, **names: Any) -> dict[str, Any]:
    """Runs one example; returns the names that it has at its end."""
    for port, address in (
        ("127.0.0.1:7200", suite.admin.metadata),
        ("127.0.0.1:7300", suite.admin.manager),
        ("10.0.0.1:7100,10.0.0.2:7100", suite.admin.storage),
    ):
        example = example.replace(port, address)
    code = compile(example, str(README), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    found: dict[str, Any] = {**names}
    running = eval(code, found)
    if inspect.isawaitable(running):
        await running
    return found


async def test_looking_at_a_cluster(
    admin_suite: AdminSuite, capsys: pytest.CaptureFixture[str]
) -> None:
    tip = await admin_suite.tier("orders", segments=2)
    found = await run(EXAMPLES[0], admin_suite)
    assert found["topic"].topic_id == tip.topic_id
    assert str(tip.topic_id) in capsys.readouterr().out


async def test_reading_a_segment(admin_suite: AdminSuite) -> None:
    tip = await admin_suite.tier("orders", segments=2)

    async with connect(admin_suite.admin.metadata) as channel:
        stub = RemoteLogMetadataServiceStub(channel)

        async def copied() -> Any:
            request = facts_pb2.ListRemoteLogSegmentsRequest(
                topic_id_partition=convert.tip_to_pb(tip)
            )
            async for page in call_stream(stub.ListRemoteLogSegments, request):
                for each in map(convert.segment_metadata_from_pb, page.segments):
                    if each.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
                        return each
            return None

        metadata = await eventually(copied)
    found = await run(EXAMPLES[1], admin_suite, metadata=metadata)
    assert bytes(found["piece"])
