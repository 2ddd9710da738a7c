"""The broker as a process, with the real metadata service."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from aquifer_broker.cluster.metadata_client import GrpcClusterMetadata
from aquifer_core.formats.record_batch import iter_batches
from aquifer_metadata.app import running_server
from aquifer_rpc.channel import connect
from aquifer_rpc.server import GrpcServer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from fixtures.broker_logs import client_batch
from fixtures.broker_process import running, wire, write_properties
from fixtures.kafka_clients import consume, create_topic, in_thread, poll_messages, produce
from fixtures.metadata_process import free_addresses
from fixtures.metadata_process import running as running_metadata
from fixtures.metadata_service import metadata_settings
from fixtures.network import TcpProxy
from fixtures.polling import eventually, eventually_sync
from fixtures.wire_topic import WireTopic

pytestmark = pytest.mark.timeout(300)

WAIT_S = 120.0
NOT_LEADER_OR_FOLLOWER = 6
STORAGE_ERROR = 56
VALUES = [str(number).encode() for number in range(1000)]


async def exit_of(properties: Path, *arguments: str) -> tuple[int, Sequence[str]]:
    """Run a broker that ends by itself: exit code and lines."""
    async with running(properties, *arguments) as broker:
        return await broker.ended(), broker.lines


def create_when_possible(address: str, topic: str) -> None:
    """Create a topic as soon as the cluster can: a broker is back among the living only after its lease."""

    def created() -> bool:
        try:
            create_topic(address, topic)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() != confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        return True

    eventually_sync(created, timeout_s=WAIT_S - 10, interval_s=0.2)


def read_from_start(address: str, topic: str, count: int) -> list[bytes | None]:
    """Read partition 0 without a group."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "unused"})
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        return [message.value() for message in poll_messages(consumer, count)]
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"node_id": "x"}, "aquifer-broker: node.id='x' is not valid"),
        (
            {"remote_log_storage_enable": "true", "aquifer_manager_endpoints": "127.0.0.1:1"},
            "remote.log.storage.manager.class.name is missing",
        ),
        (
            {
                "remote_log_storage_enable": "true",
                "remote_log_storage_system_enable": "false",
                "aquifer_manager_endpoints": "127.0.0.1:1",
            },
            "contradict each other",
        ),
    ],
)
async def test_a_refused_configuration_is_one_line_and_exit_code_2(
    tmp_path: Path, more: dict[str, str], told: str
) -> None:
    """SR-1, SR-2."""
    code, lines = await exit_of(write_properties(tmp_path / "server.properties", **more))
    assert code == 2
    assert len(lines) == 1
    assert told in lines[0]


async def test_an_override_replaces_a_property(tmp_path: Path) -> None:
    properties = write_properties(tmp_path / "server.properties")
    code, lines = await exit_of(properties, "--override", "node.id=-1")
    assert code == 2
    assert "node.id='-1' is not valid" in lines[0]


async def test_a_broker_that_waits_for_the_metadata_service_can_be_stopped(tmp_path: Path) -> None:
    properties = write_properties(tmp_path / "server.properties")
    async with running(properties) as broker:
        await broker.line_with("loop_failed")
        assert await broker.stop() == 0


async def test_a_clean_stop_leaves_everything_for_the_next_start(
    tmp_path: Path, metadata_server: GrpcServer
) -> None:
    endpoint = f"127.0.0.1:{metadata_server.port}"
    properties = write_properties(
        tmp_path / "server.properties", aquifer_metadata_endpoints=endpoint, no_such_key="1"
    )
    async with running(properties) as broker:
        address = await broker.address()
        await in_thread(create_topic, address, "t", 3)
        await in_thread(produce, address, "t", VALUES)
        assert len(await in_thread(consume, address, "t", 400)) == 400
        assert await broker.stop() == 0
        assert any("unknown_key" in line for line in broker.lines)
    assert (tmp_path / "logs" / ".kafka_cleanshutdown").exists()
    async with running(properties) as broker:
        address = await broker.address()
        rest = await in_thread(consume, address, "t", 600)
        assert len({(each.partition(), each.offset()) for each in rest}) == 600
        assert await broker.stop() == 0


async def test_a_killed_broker_comes_back_with_what_it_had_acknowledged(
    tmp_path: Path, metadata_server: GrpcServer
) -> None:
    endpoint = f"127.0.0.1:{metadata_server.port}"
    properties = write_properties(
        tmp_path / "server.properties", aquifer_metadata_endpoints=endpoint
    )
    async with running(properties) as broker:
        address = await broker.address()
        await in_thread(lambda: produce(address, "t", VALUES, enable_idempotence=True))
        assert await broker.stop(signal.SIGKILL) == -signal.SIGKILL
    async with running(properties) as broker:
        address = await broker.address()
        again = await in_thread(consume, address, "t", 1000)
        assert [each.value() for each in again] == VALUES
        assert await in_thread(produce, address, "t", [b"more"]) == [1000]
        assert await broker.stop() == 0


@pytest.fixture
async def metadata_address(database_dsn: str) -> AsyncIterator[str]:
    """The metadata service as a process, which outlives the watches of many brokers."""
    (address,) = free_addresses(1)
    async with running_metadata(database_dsn, GRPC__LISTEN=address):
        yield address


async def append(topic: WireTopic, partition: int) -> int:
    """Produce ten records as soon as the partition is led here, and return the first offset."""

    async def done() -> Any:
        answer = await topic.produce(client_batch(10), partition=partition)
        return answer if answer.error_code != NOT_LEADER_OR_FOLLOWER else None

    answer = await eventually(done, timeout_s=WAIT_S, interval_s=0.1)
    assert answer.error_code == 0
    return int(answer.base_offset)


def hide(log_dir: Path, *, mount_point: bool) -> None:
    """Take a log dir away; what is left is an empty directory, or none."""
    log_dir.rename(log_dir.with_name("away"))
    if mount_point:
        log_dir.mkdir()
    else:
        log_dir.write_text("no directory")


def bring_back(log_dir: Path) -> None:
    """Undo `hide`."""
    shutil.rmtree(log_dir) if log_dir.is_dir() else log_dir.unlink()
    log_dir.with_name("away").rename(log_dir)


async def test_what_is_in_a_log_dir_that_cannot_be_used_is_refused_until_it_is_back(
    tmp_path: Path, metadata_address: str
) -> None:
    """KAFKA_STORAGE_ERROR, never an empty log; other partitions and new topics work, and nothing acknowledged is lost."""
    dirs = tmp_path / "a", tmp_path / "b"
    properties = write_properties(
        tmp_path / "server.properties",
        aquifer_metadata_endpoints=metadata_address,
        log_dirs=",".join(map(str, dirs)),
        num_partitions="2",
    )
    async with running(properties) as broker, wire(await broker.address()) as connection:
        topic = await WireTopic.create(connection)
        assert [await append(topic, partition) for partition in (0, 1)] == [0, 0]
        assert await broker.stop(signal.SIGKILL) == -signal.SIGKILL
    (log_dir,) = (each for each in dirs if (each / "t-0").exists())

    for start, mount_point in enumerate((False, True), 1):
        hide(log_dir, mount_point=mount_point)
        async with running(properties) as broker, wire(await broker.address()) as connection:
            topic = WireTopic(connection, topic.name, topic.topic_id)
            assert (await topic.produce(client_batch(10), partition=0)).error_code == STORAGE_ERROR
            assert (await topic.fetch(0)).error_code == STORAGE_ERROR
            assert await append(topic, 1) == 10 * start
            new = await WireTopic.create(connection, f"new-{start}")
            assert [await append(new, partition) for partition in (0, 1)] == [0, 0]
            assert await broker.stop() == 0
        bring_back(log_dir)

    async with running(properties) as broker, wire(await broker.address()) as connection:
        topic = WireTopic(connection, topic.name, topic.topic_id)
        assert [await append(topic, partition) for partition in (0, 1)] == [10, 30]
        fetched = (await topic.fetch(0)).records
        assert sum(each.record_count for each in iter_batches(fetched)) == 20
        assert await broker.stop() == 0


async def test_serving_goes_on_while_the_metadata_service_cannot_be_reached(
    tmp_path: Path, metadata_server: GrpcServer
) -> None:
    """SR-36."""
    async with TcpProxy(metadata_server.port) as proxy:
        properties = write_properties(
            tmp_path / "server.properties", aquifer_metadata_endpoints=proxy.address
        )
        async with running(properties) as broker:
            address = await broker.address()
            await in_thread(produce, address, "t", VALUES)
            await proxy.refuse()
            await broker.line_with("loop_failed")
            assert await in_thread(produce, address, "t", [b"more"]) == [1000]
            assert await in_thread(read_from_start, address, "t", 1001) == [*VALUES, b"more"]
            proxy.resume()
            await in_thread(create_when_possible, address, "later")
            assert await broker.stop() == 0


async def wait_for_expiry(server: GrpcServer, broker_id: int) -> None:
    """Wait until the metadata service counts a broker as dead."""
    async with asyncio.timeout(WAIT_S), connect(f"127.0.0.1:{server.port}") as channel:
        async for update in GrpcClusterMetadata(channel).watch(0):
            if any(each.broker_id == broker_id and not each.alive for each in update.brokers):
                return


async def test_a_lost_lease_is_taken_again_with_a_higher_leader_epoch(
    tmp_path: Path, database_dsn: str
) -> None:
    settings = metadata_settings(database_dsn, broker_lease_ms=3_000)
    async with running_server(settings) as server, TcpProxy(server.port) as proxy:
        properties = write_properties(
            tmp_path / "server.properties", aquifer_metadata_endpoints=proxy.address
        )
        async with running(properties) as broker:
            address = await broker.address()
            await in_thread(produce, address, "t", VALUES)
            await proxy.refuse()
            await wait_for_expiry(server, 1)
            proxy.resume()
            await broker.line_with("lease_lost")
            # A busy machine may lose a lease earlier too.
            while '"leader_epoch": 0' in await broker.line_with('"leader": 1'):
                continue
            assert await in_thread(produce, address, "t", [b"more"]) == [1000]
            assert await broker.stop() == 0


async def test_a_broker_whose_id_another_one_takes_stops_serving(
    tmp_path: Path, metadata_server: GrpcServer
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    endpoint = f"127.0.0.1:{metadata_server.port}"
    one, two = (
        write_properties(tmp_path / name / "server.properties", aquifer_metadata_endpoints=endpoint)
        for name in ("one", "two")
    )
    async with running(one) as older:
        await older.address()
        async with running(two) as newer:
            await newer.address()
            await older.line_with("another broker has registered with node.id=1")
            assert await older.ended() == 1
            assert newer.process.returncode is None


def test_the_command_is_installed() -> None:
    assert os.access(Path(sys.executable).parent / "aquifer-broker", os.X_OK)


async def test_a_client_that_wants_more_replicas_is_told_why_not(
    metadata_server: GrpcServer, tmp_path: Path
) -> None:
    """Brokers do not replicate: nobody is promised a copy that does not exist."""
    properties = write_properties(
        tmp_path / "server.properties",
        aquifer_metadata_endpoints=f"127.0.0.1:{metadata_server.port}",
    )

    def refused(address: str) -> list[confluent_kafka.KafkaError]:
        admin = AdminClient({"bootstrap.servers": address})
        create_topic(address, "orders")
        futures = [
            admin.create_topics([NewTopic("wide", 1, 2)])["wide"],
            admin.create_topics([NewTopic("wide", 1, replica_assignment=[[1, 2]])])["wide"],
            admin.create_partitions([NewPartitions("orders", 2, [[1, 2]])])["orders"],
        ]
        return [future.exception(10).args[0] for future in futures]

    async with running(properties) as broker:
        for error in await in_thread(refused, await broker.address()):
            assert error.code() == confluent_kafka.KafkaError.INVALID_REPLICATION_FACTOR
            assert "brokers do not replicate yet" in error.str()
            assert "use 1" in error.str()
