"""Traces and metrics reach the collector: over TLS that is renewed, and however many there are."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from aquifer_core.errors import InvalidConfigurationError
from aquifer_rpc.settings import TelemetrySettings
from aquifer_rpc.telemetry import telemetry
from aquifer_standalone.ports import hold_port
from fixtures.otlp import OtlpCollector, collecting
from fixtures.polling import eventually
from fixtures.tls_authority import Authority, TlsFolder

# Providers are set once in a process, so each of these is one.
_SENDING = """
import sys, time
from aquifer_rpc.settings import TelemetrySettings
from aquifer_rpc.telemetry import telemetry
from opentelemetry import metrics, trace

with telemetry(TelemetrySettings(otlp_endpoint=sys.argv[1], metrics_interval_s=1), "sender"):
    counter = metrics.get_meter("t").create_counter("sent")
    while True:
        with trace.get_tracer("t").start_as_current_span("sent"):
            counter.add(1)
        time.sleep(0.1)
"""
_MANY = """
import sys
from aquifer_rpc.settings import TelemetrySettings
from aquifer_rpc.telemetry import telemetry
from opentelemetry import metrics

with telemetry(TelemetrySettings(otlp_endpoint=sys.argv[1], export_timeout_s=60), "many"):
    counter = metrics.get_meter("t").create_counter("sent")
    for number in range(int(sys.argv[2])):
        counter.add(1, {"topic": f"{number:0200}"})
"""
_SERIES = 25_000


@asynccontextmanager
async def sending(endpoint: str, ca_file: Path) -> AsyncIterator[None]:
    """A process that sends spans and a counter all the time."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _SENDING,
        endpoint,
        env={**os.environ, "OTEL_EXPORTER_OTLP_CERTIFICATE": str(ca_file)},
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.kill()
        await process.wait()


def certified_by(authority: Authority) -> grpc.ServerCredentials:
    pair = authority.issue()
    return grpc.ssl_server_credentials([(pair.key, pair.certificate)])


async def everything_arrives(collector: OtlpCollector) -> None:
    await eventually(lambda: collector.spans and collector.points, timeout_s=120)


async def test_a_collector_with_a_new_authority_is_reached_without_a_restart(
    tmp_path: Path,
) -> None:
    former, newer = Authority("former"), Authority("newer")
    folder = TlsFolder(tmp_path / "tls").write(former, pair=former.issue())
    with hold_port() as port:
        number = port.number
    async with sending(f"https://127.0.0.1:{number}", folder.ca_file):
        async with collecting(number, certified_by(former)) as collector:
            await everything_arrives(collector)
        async with collecting(number, certified_by(newer)) as collector:
            folder.replace(folder.ca_file, newer.certificate)
            await everything_arrives(collector)


async def test_more_series_than_a_message_holds_arrive(otlp_collector: OtlpCollector) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _MANY, otlp_collector.endpoint, str(_SERIES)
    )
    assert await process.wait() == 0
    topics = {point.attributes.get("topic") for point in otlp_collector.points}
    assert len(topics) == _SERIES


async def test_an_authority_that_cannot_be_read_ends_the_start(tmp_path: Path) -> None:
    """And does not leave a process that sends nothing."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _SENDING,
        "https://127.0.0.1:1",
        env={**os.environ, "OTEL_EXPORTER_OTLP_CERTIFICATE": str(tmp_path / "none.pem")},
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    assert b"none.pem cannot be read" in errors


@pytest.mark.parametrize(
    "endpoint", ["", "collector:4317", "http://", "http://collector", "grpc://collector:4317"]
)
def test_what_is_no_address_of_a_collector_is_refused(endpoint: str) -> None:
    """OpenTelemetry takes it for something else, and nothing arrives anywhere."""
    settings = TelemetrySettings(otlp_endpoint=endpoint)
    with (
        pytest.raises(InvalidConfigurationError, match="http://host:port") as raised,
        telemetry(settings, "sender"),
    ):
        pass
    assert repr(endpoint) in raised.value.message
