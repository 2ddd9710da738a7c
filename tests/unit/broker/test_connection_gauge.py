"""The gauge of open connections; in a process of its own, as the metrics of a process are set up once."""

import asyncio
import subprocess
import sys
from contextlib import AsyncExitStack
from typing import Any

from aquifer_broker.protocol.budget import RequestBudget
from aquifer_broker.protocol.client import Client, Reply
from aquifer_broker.protocol.server import KafkaServer
from fixtures.polling import eventually
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader


async def no_answer(frame: memoryview, client: Client) -> Reply | None:
    return None


def listener(name: str) -> KafkaServer:
    return KafkaServer(
        no_answer,
        listener=name,
        host="127.0.0.1",
        port=0,
        max_request_bytes=100,
        request_budget=RequestBudget(100),
    )


async def open_three() -> int:
    """Open connections of two listeners and return what the gauge says."""
    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([reader]))
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(listener("FIRST"))
        second = await stack.enter_async_context(listener("SECOND"))
        for server in (first, first, second):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            stack.callback(writer.close)
        await eventually(lambda: first.connection_count + second.connection_count == 3)
        data: Any = reader.get_metrics_data()
    (found,) = [
        metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "aquifer.kafka.connections"
    ]
    (point,) = found.data.data_points
    return int(point.value)


def main() -> None:
    assert asyncio.run(open_three()) == 3


def test_connections_of_all_listeners_are_counted() -> None:
    call = f"import runpy, sys; sys.path = {sys.path!r}; runpy.run_path({__file__!r})['main']()"
    done = subprocess.run(
        [sys.executable, "-c", call], capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
