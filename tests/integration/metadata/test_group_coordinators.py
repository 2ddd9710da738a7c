"""Offsets of groups are written only by who coordinates them, through gRPC on a real PostgreSQL."""

import asyncio

import psycopg
import pytest
from aquifer.metadata.v1 import cluster_metadata_service_pb2 as pb
from aquifer_core.errors import AquiferError, ConcurrentUpdateError, PreconditionError
from aquifer_rpc.calls import call_unary
from fixtures.cluster_calls import Stub, register, snapshot
from fixtures.polling import eventually

WAITING = (
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


class Coordinator:
    """A broker that believes to coordinate a group since it last looked."""

    def __init__(self, stub: Stub, broker_id: int) -> None:
        self._stub = stub
        self._said = pb.GroupCoordinator(broker_id=broker_id)

    async def register(self) -> "Coordinator":
        """Get a lease, and look."""
        lease = await register(self._stub, self._said.broker_id)
        self._said.broker_epoch = lease.broker_epoch
        await self.look()
        return self

    async def look(self) -> None:
        """See the cluster as it is."""
        self._said.cluster_version = (await snapshot(self._stub)).version

    async def leave(self) -> None:
        """End the lease."""
        request = pb.UnregisterBrokerRequest(
            broker_id=self._said.broker_id, broker_epoch=self._said.broker_epoch
        )
        await call_unary(self._stub.UnregisterBroker, request)

    async def commit(self, offset: int) -> None:
        """Store an offset."""
        request = commit_of(offset)
        request.coordinator.CopyFrom(self._said)
        await call_unary(self._stub.CommitOffsets, request, deadline_s=60)

    async def delete(self) -> None:
        """Delete the group."""
        request = pb.DeleteOffsetsRequest(group_id="g", coordinator=self._said)
        await call_unary(self._stub.DeleteOffsets, request, deadline_s=60)

    async def refusal(self) -> AquiferError:
        """Why nothing can be written; the same for both kinds."""
        with pytest.raises(AquiferError) as committing:
            await self.commit(1)
        with pytest.raises(AquiferError) as deleting:
            await self.delete()
        assert committing.value == deleting.value
        return committing.value


def commit_of(offset: int) -> pb.CommitOffsetsRequest:
    value = pb.GroupOffset(topic="t", partition=0, offset=offset)
    return pb.CommitOffsetsRequest(group_id="g", offsets=[value])


async def stored(stub: Stub) -> list[int]:
    answer = await call_unary(stub.FetchOffsets, pb.FetchOffsetsRequest(group_id="g"))
    return [each.offset for each in answer.offsets]


async def test_who_has_lost_its_lease_changes_no_offsets(cluster_stub: Stub) -> None:
    """Neither while it has none, nor under the one before when it has another."""
    old = await Coordinator(cluster_stub, 1).register()
    await old.commit(10)
    await old.leave()
    refused = await old.refusal()
    assert isinstance(refused, PreconditionError)
    assert (refused.reason, refused.metadata) == ("STALE_BROKER_EPOCH", {"brokerId": "1"})
    new = await Coordinator(cluster_stub, 1).register()
    await old.look()
    assert (await old.refusal()).reason == "STALE_BROKER_EPOCH"
    assert await stored(cluster_stub) == [10]
    await new.commit(11)
    assert await stored(cluster_stub) == [11]
    await new.delete()
    assert await stored(cluster_stub) == []


async def test_who_has_not_seen_the_newest_broker_looks_first(cluster_stub: Stub) -> None:
    """That broker may have coordinated the group; also when it has left again."""
    coordinator = await Coordinator(cluster_stub, 1).register()
    await coordinator.commit(10)
    other = await Coordinator(cluster_stub, 2).register()
    for _ in range(2):
        refused = await coordinator.refusal()
        assert isinstance(refused, ConcurrentUpdateError)
        assert int(refused.metadata["clusterVersion"]) <= (await snapshot(cluster_stub)).version
        await other.leave()
    await coordinator.look()
    await coordinator.commit(11)
    assert await stored(cluster_stub) == [11]


async def test_other_changes_of_the_cluster_are_of_no_importance(cluster_stub: Stub) -> None:
    other = await Coordinator(cluster_stub, 2).register()
    coordinator = await Coordinator(cluster_stub, 1).register()
    await other.leave()
    topic = pb.NewTopic(name="t", num_partitions=1, replication_factor=1)
    await call_unary(cluster_stub.CreateTopics, pb.CreateTopicsRequest(topics=[topic]))
    await coordinator.commit(10)
    assert await stored(cluster_stub) == [10]


async def test_who_names_no_coordinator_writes_as_before(cluster_stub: Stub) -> None:
    """As brokers that are older than the service do."""
    await Coordinator(cluster_stub, 1).register()
    await call_unary(cluster_stub.CommitOffsets, commit_of(10))
    assert await stored(cluster_stub) == [10]
    await call_unary(cluster_stub.DeleteOffsets, pb.DeleteOffsetsRequest(group_id="g"))
    assert await stored(cluster_stub) == []


@pytest.mark.parametrize("kind", ["commit", "delete"])
async def test_who_waits_for_its_successor_is_refused_in_the_end(
    cluster_stub: Stub, metadata_dsn: str, kind: str
) -> None:
    """It was the coordinator when its statement began, and would write over what was stored meanwhile."""
    coordinator = await Coordinator(cluster_stub, 1).register()
    await coordinator.commit(10)
    async with (
        await psycopg.AsyncConnection.connect(metadata_dsn) as successor,
        await psycopg.AsyncConnection.connect(metadata_dsn, autocommit=True) as watching,
    ):
        await successor.execute("UPDATE group_offset SET \"offset\" = 100 WHERE group_id = 'g'")
        write = coordinator.commit(11) if kind == "commit" else coordinator.delete()
        writing = asyncio.create_task(write)

        async def waits() -> bool:
            return await (await watching.execute(WAITING)).fetchone() is not None

        await eventually(waits)
        await coordinator.leave()
        await successor.commit()
        with pytest.raises(PreconditionError):
            await writing
    assert await stored(cluster_stub) == [100]
