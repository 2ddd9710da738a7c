"""Coordinators that see the cluster late, stand still and lose their leases: only members of the group's present coordinator commit.

Real coordinators of brokers over the real stores of the metadata service; the model knows who coordinates at any moment, and since when.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from aquifer_broker.cluster import ports
from aquifer_broker.cluster.view import BrokerInfo, ClusterUpdate, ClusterView
from aquifer_broker.coordination.group_coordinator import GroupCoordinator
from aquifer_broker.coordination.group_values import (
    GroupSettings,
    JoinRequest,
    MemberIdentity,
    SyncRequest,
)
from aquifer_broker.coordination.placement import coordinator_of
from aquifer_core.errors import ConcurrentUpdateError
from aquifer_core.ids import KafkaUuid
from aquifer_metadata.adapters.postgres.change_signal import ChangeSignal
from aquifer_metadata.adapters.postgres.cluster_brokers import SqlBrokerStore
from aquifer_metadata.adapters.postgres.cluster_groups import SqlGroupStore
from aquifer_metadata.adapters.postgres.cluster_log import current_version, initialize_cluster
from aquifer_metadata.adapters.postgres.cluster_rows import load_brokers
from aquifer_metadata.adapters.postgres.database import Database, DatabaseOptions
from aquifer_metadata.domain import cluster
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

IDS = (1, 2, 3)
LIKELY = {
    "commit": 5,
    "join": 4,
    "look_all": 3,
    "expire": 3,
    "visit": 3,
    "commit_late": 2,
    "look": 2,
    "register": 2,
    "go_on": 2,
}
STEPS = st.lists(
    st.tuples(
        st.sampled_from([kind for kind, weight in LIKELY.items() for _ in range(weight)]),
        st.sampled_from(IDS),
    ),
    min_size=20,
    max_size=30,
)
GROUP = "g"
JOIN = JoinRequest(
    identity=MemberIdentity(member_id=""),
    client_id="c",
    client_host="h",
    session_timeout_ms=1_000_000,
    rebalance_timeout_ms=1_000_000,
    protocol_type="consumer",
    protocols=(("range", b""),),
)


class Offsets:
    """A broker's way to the offsets, on which a write may stand still."""

    def __init__(self, store: SqlGroupStore) -> None:
        self._store = store
        self.go = asyncio.Event()
        self.go.set()
        self.arrived = asyncio.Event()

    async def commit_offsets(
        self, group_id: str, offsets: Sequence[ports.GroupOffset], said: ports.Coordination
    ) -> None:
        await self._reach()
        try:
            await self._store.commit(
                group_id,
                [cluster.GroupOffset(**asdict(each)) for each in offsets],
                cluster.GroupCoordinator(**asdict(said)),
            )
        except ConcurrentUpdateError:
            self.arrived.set()
            raise

    async def fetch_offsets(
        self, group_id: str, partitions: Sequence[tuple[str, int]] | None
    ) -> list[ports.GroupOffset]:
        found = await self._store.fetch(group_id, ())
        return [ports.GroupOffset(**asdict(each)) for each in found]

    async def delete_offsets(
        self,
        group_id: str,
        partitions: Sequence[tuple[str, int]] | None,
        said: ports.Coordination,
    ) -> None:
        await self._store.delete(group_id, (), cluster.GroupCoordinator(**asdict(said)))

    async def list_groups(self) -> list[str]:
        return list(await self._store.group_ids())

    async def _reach(self) -> None:
        if not self.go.is_set():
            self.arrived.set()
            await self.go.wait()


@dataclass(slots=True, kw_only=True)
class Member:
    """The last member that joined at a broker, and in which term of coordination of the group."""

    identity: MemberIdentity
    generation_id: int
    term: int
    seen: bool
    """Whether the broker knew all brokers then. Else it may take the group for one that was away meanwhile."""


@dataclass(slots=True)
class Node:
    """What a broker consists of here."""

    broker_id: int
    offsets: Offsets
    view: ClusterView = field(default_factory=ClusterView)
    incarnation: str = field(default_factory=lambda: str(KafkaUuid.random()))
    broker_epoch: int = 0
    member: Member | None = None
    held: asyncio.Task[ErrorCode] | None = None
    held_member: Member | None = None
    groups: GroupCoordinator = field(init=False)

    def __post_init__(self) -> None:
        self.groups = GroupCoordinator(
            node_id=self.broker_id,
            view=self.view,
            offsets=self.offsets,
            settings=GroupSettings(initial_rebalance_delay_ms=0),
        )


class Coordination:
    """Three brokers and a group with one partition."""

    def __init__(self, database: Database, tally: Counter[bool]) -> None:
        self.term = 0
        self.coordinator: tuple[int, int] | None = None
        self.live: dict[int, int] = {}
        self.newest = 0
        self.next_offset = 0
        self.stored: list[int] = []
        self.tally = tally
        self.database = database
        self.brokers = SqlBrokerStore(database, ChangeSignal(database), lease_ms=1_000_000)
        self.groups = SqlGroupStore(database)
        self.nodes = {broker_id: Node(broker_id, Offsets(self.groups)) for broker_id in IDS}

    async def run(self, steps: Sequence[tuple[str, int]]) -> None:
        """From a cluster where all live and know it."""

        async def forget(connection: AsyncConnection) -> None:
            await connection.execute(text("DELETE FROM broker"))
            await connection.execute(text("DELETE FROM group_offset"))

        await self.database.write(forget)
        for broker_id in IDS:
            await self.register(broker_id)
        await self.look_all(0)
        try:
            for kind, number in steps:
                await getattr(self, kind)(number)
        finally:
            for node in self.nodes.values():
                await self._end(node)

    async def _end(self, node: Node) -> None:
        if node.held is not None:
            node.held.cancel()
            await asyncio.wait({node.held})
        node.groups.close()

    async def register(self, broker_id: int) -> None:
        """A broker starts, or has lost its lease and takes another."""
        node = self.nodes[broker_id]
        said = cluster.Broker(broker_id=node.broker_id, incarnation=node.incarnation)
        lease = await self.brokers.register(said)
        if lease.broker_epoch == node.broker_epoch:
            return
        node.broker_epoch = self.live[node.broker_id] = self.newest = lease.broker_epoch
        node.groups.registered_as(lease.broker_epoch)
        self._judge()

    async def expire(self, broker_id: int) -> None:
        """A lease ends, which the broker need not know."""
        await self.brokers.unregister(broker_id, self.nodes[broker_id].broker_epoch)
        self.live.pop(broker_id, None)
        self._judge()

    async def visit(self, broker_id: int) -> None:
        """A broker is there for a moment only."""
        await self.register(broker_id)
        await self.expire(broker_id)

    async def look_all(self, _: int) -> None:
        """All see the cluster as it is."""
        await self._look(*self.nodes.values())

    async def look(self, broker_id: int) -> None:
        """A broker sees the cluster as it is."""
        await self._look(self.nodes[broker_id])

    def _judge(self) -> None:
        """Who coordinates, and is it another or another registration of the same?"""
        broker_id = coordinator_of(GROUP, self.live)
        coordinator = None if broker_id is None else (broker_id, self.live[broker_id])
        if coordinator != self.coordinator:
            self.coordinator = coordinator
            self.term += 1

    async def _look(self, *nodes: Node) -> None:
        async def seen(connection: AsyncConnection) -> tuple[int, tuple[cluster.Broker, ...]]:
            return await current_version(connection), await load_brokers(connection)

        version, brokers = await self.database.snapshot(seen)
        known = tuple(
            BrokerInfo(
                broker_id=each.broker_id,
                incarnation=each.incarnation,
                broker_epoch=each.broker_epoch,
                alive=each.alive,
            )
            for each in brokers
        )
        for node in nodes:
            node.view.apply(ClusterUpdate(version=version, is_snapshot=True, brokers=known))

    async def join(self, number: int) -> None:
        """A consumer finds a broker that believes to coordinate the group, rightly or not."""
        willing = [node for node in self.nodes.values() if not node.groups.refusal(GROUP)]
        if not willing:
            return
        node = willing[number % len(willing)]
        if node.member is not None:
            node.groups.leave(GROUP, [node.member.identity])
            node.member = None
        joined = await node.groups.join(GROUP, JOIN)
        if joined.error is ErrorCode.none:
            identity = MemberIdentity(member_id=joined.member_id)
            asked = SyncRequest(identity=identity, generation_id=joined.generation_id)
            assert (await node.groups.sync(GROUP, asked)).error is ErrorCode.none
            is_right = self.coordinator is not None and self.coordinator[0] == node.broker_id
            node.member = Member(
                identity=identity,
                generation_id=joined.generation_id,
                term=self.term if is_right else -1,
                seen=node.view.version >= self.newest,
            )

    async def commit(self, number: int) -> None:
        """A member commits."""
        await self._commit(number, stands_still=False)

    async def commit_late(self, number: int) -> None:
        """A member commits, and its broker stands still before the call is on its way."""
        await self._commit(number, stands_still=True)

    async def _commit(self, number: int, *, stands_still: bool) -> None:
        nodes = [node for node in self.nodes.values() if node.member and not node.held]
        if not nodes:
            return
        node = nodes[number % len(nodes)]
        member = node.member
        assert member is not None
        self.next_offset += 1
        if stands_still:
            node.offsets.go.clear()
        node.offsets.arrived.clear()
        offset = ports.GroupOffset(topic="t", partition=0, offset=self.next_offset)
        task = asyncio.create_task(
            node.groups.commit(GROUP, member.identity, member.generation_id, [offset])
        )
        arrived = asyncio.create_task(node.offsets.arrived.wait())
        await asyncio.wait({task, arrived}, return_when=asyncio.FIRST_COMPLETED)
        arrived.cancel()
        if stands_still and not task.done():
            node.held, node.held_member = task, member
            return
        node.offsets.go.set()
        await self._outcome(node, task, member, self.next_offset)

    async def go_on(self, number: int) -> None:
        """A broker that stood still goes on, and what it had to say is said."""
        held = [node for node in self.nodes.values() if node.held]
        if not held:
            return
        node = held[number % len(held)]
        task, member = node.held, node.held_member
        assert task is not None
        assert member is not None
        node.held = node.held_member = None
        node.offsets.arrived.clear()
        node.offsets.go.set()
        arrived = asyncio.create_task(node.offsets.arrived.wait())
        await asyncio.wait({task, arrived}, return_when=asyncio.FIRST_COMPLETED)
        arrived.cancel()
        await self._outcome(node, task, member, None)

    async def _outcome(
        self, node: Node, task: asyncio.Task[ErrorCode], member: Member, offset: int | None
    ) -> None:
        is_current = self.coordinator == (node.broker_id, node.broker_epoch)
        may = is_current and member.term == self.term
        must = may and offset is not None and member.seen and node.view.version >= self.newest
        before = self.stored
        if not task.done():
            await self._look(node)
        try:
            code = await task
        except TimeoutError:  # a busy machine: the brokers were not seen in time
            code = ErrorCode.request_timed_out
        self.stored = [each.offset for each in await self.groups.fetch(GROUP, ())]
        if code is ErrorCode.none:
            assert may, "only members of the present coordinator commit"
        else:
            assert not must, code
            assert self.stored == before
        self.tally[code is ErrorCode.none] += 1


def test_only_members_of_the_present_coordinator_commit(metadata_dsn: str) -> None:
    tally: Counter[bool] = Counter()
    with asyncio.Runner() as runner:
        database = runner.run(_connected(metadata_dsn))

        async def one(steps: Sequence[tuple[str, int]]) -> None:
            await Coordination(database, tally).run(steps)

        @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
        @given(steps=STEPS)
        def check(steps: Sequence[tuple[str, int]]) -> None:
            runner.run(one(steps))

        try:
            check()
        finally:
            runner.run(database.engine.dispose())
    assert tally[True]


async def _connected(dsn: str) -> Database:
    database = Database(DatabaseOptions(dsn=dsn, pool_size=3, statement_timeout_ms=120_000))
    await initialize_cluster(database)
    return database
