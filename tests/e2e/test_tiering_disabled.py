"""A broker at its defaults has nothing of tiered storage: no object, thread, connection or listener (SR-1)."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from aquifer_broker.protocol.versions import ApiKey
from aquifer_standalone.ports import LOOPBACK, hold_port
from aquifer_standalone.process import ChildProcess
from aquifer_standalone.readiness import kafka_serving
from aquifer_standalone.spec import ProcessSpec
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from fixtures.kafka_traffic import assert_same, consume, produce, records_of
from fixtures.kafka_wire import KafkaWire
from fixtures.suite import E2E_GROUP, RunningSuite
from kio.schema.errors import ErrorCode

pytestmark = pytest.mark.xdist_group(E2E_GROUP)

BROKER_ID = 9
TIERING_MODULES = (
    "aquifer_broker.tiering",
    "aquifer_client",
    "aquifer.broker",
    "aquifer.manager",
    "aquifer.storage",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainBroker:
    """A broker process; `port` is that of its Kafka listener, the log lists every module that was imported."""

    process: psutil.Process
    port: int
    log_file: Path

    @property
    def bootstrap(self) -> str:
        """Its address."""
        return f"{LOOPBACK}:{self.port}"

    def imported(self) -> set[str]:
        """Names of all modules imported so far."""
        lines = self.log_file.read_text(errors="replace").splitlines()
        return {
            line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")
        }


@asynccontextmanager
async def plain_broker(suite: RunningSuite, folder: Path) -> AsyncIterator[PlainBroker]:
    """A broker of the suite's cluster with default settings."""
    port = hold_port()
    listener = f"PLAINTEXT://{LOOPBACK}:{port.number}"
    properties = {
        "node.id": str(BROKER_ID),
        "listeners": listener,
        "log.dirs": str(folder / "logs"),
        "aquifer.metadata.endpoints": suite.stack.address("metadata"),
    }
    file = folder / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    spec = ProcessSpec(
        name="plain",
        argv=(sys.executable, "-X", "importtime", "-m", "aquifer_broker", str(file)),
        readiness=lambda: kafka_serving(LOOPBACK, port.number),
        ports=(port,),
    )
    async with ChildProcess(spec, log_dir=folder) as child:
        assert child.pid is not None
        yield PlainBroker(
            process=psutil.Process(child.pid), port=port.number, log_file=child.log_file
        )


async def create_topic(broker: PlainBroker, name: str, **configs: str) -> None:
    """Create a topic on this broker."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    given = {key.replace("_", "."): value for key, value in configs.items()}
    new = NewTopic(name, 1, replica_assignment=[[BROKER_ID]], config=given)
    (future,) = admin.create_topics([new]).values()
    await asyncio.wait_for(asyncio.wrap_future(future), 60)


async def test_a_broker_at_its_defaults_has_no_trace_of_tiering(
    suite: RunningSuite, tmp_path: Path
) -> None:
    """It works as ever, listens for Kafka only, talks to the metadata service only (SR-1, SR-37)."""
    name = f"plain-{os.getpid()}"
    async with plain_broker(suite, tmp_path) as broker:
        await create_topic(broker, name, segment_bytes="65536")
        acked = await asyncio.to_thread(produce, broker.bootstrap, name, records_of(300))
        assert_same(await asyncio.to_thread(consume, broker.bootstrap, name, 300), acked)
        connections = broker.process.net_connections(kind="tcp")
        listening = {each.laddr.port for each in connections if each.status == "LISTEN"}
        assert listening == {broker.port}
        called = {
            f"{each.raddr.ip.removeprefix('::ffff:')}:{each.raddr.port}"
            for each in connections
            if each.raddr and each.laddr.port != broker.port
        }
        assert called == {suite.stack.address("metadata")}
        imported = broker.imported()
        assert "aquifer_broker.app" in imported
        assert not [module for module in imported if module.startswith(TIERING_MODULES)]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        (deleted,) = admin.delete_topics([name]).values()
        await asyncio.wait_for(asyncio.wrap_future(deleted), 60)


async def test_a_tiered_topic_is_refused_where_tiering_is_off(
    suite: RunningSuite, tmp_path: Path
) -> None:
    """With a message that names the remedy (K-7.2)."""
    topic = {
        "name": "refused",
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [{"name": "remote.storage.enable", "value": "true"}],
    }
    request = {"topics": [topic], "timeout": timedelta(seconds=10), "validate_only": False}
    async with plain_broker(suite, tmp_path) as broker, KafkaWire(broker.port) as wire:
        answer = await wire.ask(ApiKey.CREATE_TOPICS, 7, request)
    (refused,) = answer.topics
    assert refused.error_code is ErrorCode.invalid_config
    assert "remote.log.storage.enable=true" in refused.error_message
