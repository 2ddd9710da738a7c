"""The coordinator of a group stands still for longer than its lease and comes back: what its successor stored is not taken back."""

import itertools
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aquifer.metadata.v1 import cluster_metadata_service_pb2 as pb
from aquifer.metadata.v1.cluster_metadata_service_pb2_grpc import ClusterMetadataServiceStub
from aquifer_broker.coordination.placement import coordinator_of
from aquifer_broker.protocol.versions import ApiKey
from aquifer_metadata.app import running_server
from aquifer_rpc.calls import call_unary
from aquifer_rpc.channel import connect
from fixtures.broker_process import BrokerProcess, running, wire, write_properties
from fixtures.cluster_calls import snapshot
from fixtures.kafka_wire import KafkaWire
from fixtures.metadata_service import metadata_settings
from fixtures.polling import eventually
from fixtures.suite import CHAOS_GROUP
from fixtures.wire_topic import WireTopic

pytestmark = [pytest.mark.xdist_group(CHAOS_GROUP), pytest.mark.timeout(300)]

WAIT_S = 120.0
FROZEN, OTHER = 1, 2
LONG = timedelta(minutes=20)
GROUP = next(
    group
    for number in itertools.count()
    if coordinator_of(group := f"g-{number}", (FROZEN, OTHER)) == FROZEN
)


class Member:
    """The only member of the group, over a connection to its coordinator."""

    def __init__(self, connection: KafkaWire) -> None:
        self._wire = connection
        self._identity: dict[str, Any] = {}

    async def join(self) -> bool:
        """Become the group's member; False: not coordinated here, or not yet."""
        joining = {
            "group_id": GROUP,
            "session_timeout": LONG,
            "rebalance_timeout": LONG,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        joined = await self._wire.ask(ApiKey.JOIN_GROUP, 3, joining)
        if joined.error_code:
            return False
        member = {
            "group_id": GROUP,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
        }
        synced = await self._wire.ask(ApiKey.SYNC_GROUP, 2, {**member, "assignments": []})
        self._identity = {
            "group_id": GROUP,
            "generation_id_or_member_epoch": joined.generation_id,
            "member_id": joined.member_id,
        }
        return not synced.error_code

    async def send_commit(self, offset: int) -> None:
        """Send a commit without waiting for its answer."""
        partition = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        values = {"topics": [{"name": "t", "partitions": [partition]}], **self._identity}
        await self._wire.send(ApiKey.OFFSET_COMMIT, 6, values)

    async def outcome(self) -> int:
        """The error code of the commit that was sent."""
        answer = await self._wire.receive(ApiKey.OFFSET_COMMIT, 6)
        return int(answer.topics[0].partitions[0].error_code)

    async def commit(self, offset: int) -> int:
        """Commit and return the error code."""
        await self.send_commit(offset)
        return await self.outcome()


@contextmanager
def frozen(broker: BrokerProcess) -> Iterator[None]:
    """Stop the process in its tracks."""
    broker.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        broker.process.send_signal(signal.SIGCONT)


@asynccontextmanager
async def two_brokers(
    path: Path, endpoint: str
) -> AsyncIterator[tuple[BrokerProcess, KafkaWire, KafkaWire]]:
    """The broker to be frozen with a connection to it, and one to the other."""
    files = []
    for node_id in (FROZEN, OTHER):
        directory = path / str(node_id)
        directory.mkdir()
        properties = write_properties(
            directory / "server.properties",
            node_id=str(node_id),
            aquifer_metadata_endpoints=endpoint,
        )
        files.append(properties)
    async with (
        running(files[0]) as broker,
        running(files[1]) as other,
        wire(await broker.address()) as to_it,
        wire(await other.address()) as to_other,
    ):
        yield broker, to_it, to_other


async def committed(stub: Any) -> list[int]:
    """What the metadata service has."""
    answer = await call_unary(stub.FetchOffsets, pb.FetchOffsetsRequest(group_id=GROUP))
    return [each.offset for each in answer.offsets]


async def test_a_coordinator_frozen_beyond_its_lease_commits_nothing_over_its_successor(
    tmp_path: Path, database_dsn: str
) -> None:
    settings = metadata_settings(database_dsn, broker_lease_ms=3_000)
    async with (
        running_server(settings) as server,
        connect(f"127.0.0.1:{server.port}") as channel,
        two_brokers(tmp_path, f"127.0.0.1:{server.port}") as (broker, to_frozen, to_other),
    ):
        stub = ClusterMetadataServiceStub(channel)

        async def both_live() -> bool:
            return sum(each.alive for each in (await snapshot(stub)).snapshot.brokers) == 2

        await eventually(both_live, timeout_s=WAIT_S)
        await WireTopic.create(to_other)
        before, after = Member(to_frozen), Member(to_other)
        assert await eventually(before.join, timeout_s=WAIT_S)
        await eventually(lambda: _is_done(before.commit(10)), timeout_s=WAIT_S)
        with frozen(broker):
            await before.send_commit(11)
            await eventually(after.join, timeout_s=WAIT_S, interval_s=0.2)
            await eventually(lambda: _is_done(after.commit(100)), timeout_s=WAIT_S)
        assert await before.outcome() != 0
        assert await committed(stub) == [100]


async def _is_done(outcome: Any) -> bool:
    return await outcome == 0
