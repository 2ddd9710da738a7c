"""Offsets of one group are written one after the other, whoever writes them."""

import asyncio
from collections.abc import Sequence

from aquifer_broker.cluster.ports import Coordination, GroupOffset
from aquifer_broker.cluster.view import BrokerInfo, ClusterUpdate, ClusterView
from aquifer_broker.coordination.group_coordinator import GroupCoordinator
from aquifer_broker.coordination.group_values import GroupSettings, JoinRequest, MemberIdentity
from aquifer_broker.coordination.offset_cleanup import OffsetCleanup
from fixtures.broker_logs import ManualClock
from fixtures.cluster_metadata import InMemoryClusterMetadata
from kio.schema.errors import ErrorCode

ALONE = MemberIdentity(member_id="")
JOIN = JoinRequest(
    identity=ALONE,
    client_id="c",
    client_host="h",
    session_timeout_ms=1_000_000,
    rebalance_timeout_ms=10_000,
    protocol_type="consumer",
    protocols=(("range", b""),),
)


class HeldStore(InMemoryClusterMetadata):
    """Writes of offsets wait while they are held, and are done in the end, as calls are that hang in the network."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()

    async def commit_offsets(
        self,
        group_id: str,
        offsets: Sequence[GroupOffset],
        coordination: Coordination | None = None,
    ) -> None:
        await self._held()
        await super().commit_offsets(group_id, offsets, coordination)

    async def delete_offsets(
        self,
        group_id: str,
        partitions: Sequence[tuple[str, int]] | None,
        coordination: Coordination | None = None,
    ) -> None:
        await self._held()
        await super().delete_offsets(group_id, partitions, coordination)

    async def _held(self) -> None:
        go = self.go
        self.arrived.set()
        await go.wait()

    def hold_next(self) -> asyncio.Event:
        """The next write waits for what is returned, those after it do not."""
        self.arrived.clear()
        self.go = asyncio.Event()
        return self.go

    async def held(self) -> None:
        """Returns once the next write waits."""
        async with asyncio.timeout(60):
            await self.arrived.wait()
        self.go = asyncio.Event()
        self.go.set()


class Groups:
    """A coordinator over such a store."""

    def __init__(self) -> None:
        self.store = HeldStore()
        self.view = ClusterView()
        self.coordinator = GroupCoordinator(
            node_id=1,
            view=self.view,
            offsets=self.store,
            settings=GroupSettings(initial_rebalance_delay_ms=0),
        )
        broker = self.store.brokers[1] = BrokerInfo(broker_id=1, incarnation="i")
        self.view.apply(ClusterUpdate(version=1, is_snapshot=True, brokers=(broker,)))

    async def commit(
        self,
        offset: int,
        member: MemberIdentity = ALONE,
        generation: int = -1,
        partition: int = 0,
    ) -> ErrorCode:
        value = GroupOffset(topic="t", partition=partition, offset=offset)
        return await self.coordinator.commit("g", member, generation, [value])

    async def committed(self) -> list[int]:
        return [each.offset for each in await self.store.fetch_offsets("g", None)]

    async def pass_loop(self) -> None:
        """Lets everything go on that can."""
        for _ in range(20):
            await asyncio.sleep(0)


async def test_a_commit_that_hangs_does_not_overwrite_the_one_after_it() -> None:
    groups = Groups()
    go = groups.store.hold_next()
    first = asyncio.create_task(groups.commit(10))
    await groups.store.held()
    second = asyncio.create_task(groups.commit(20))
    await groups.pass_loop()
    go.set()
    assert [await first, await second] == [ErrorCode.none, ErrorCode.none]
    assert await groups.committed() == [20]


async def test_commits_of_other_partitions_do_not_wait_for_one_that_hangs() -> None:
    groups = Groups()
    go = groups.store.hold_next()
    hanging = asyncio.create_task(groups.commit(10))
    await groups.store.held()
    assert await groups.commit(20, partition=1) is ErrorCode.none
    assert not hanging.done()
    go.set()
    assert await hanging is ErrorCode.none
    assert sorted(await groups.committed()) == [10, 20]


async def test_a_member_that_was_replaced_while_its_commit_waited_does_not_commit() -> None:
    groups = Groups()
    coordinator = groups.coordinator
    joined = await coordinator.join("g", JOIN)
    member = MemberIdentity(member_id=joined.member_id)
    assert await groups.commit(10, member, joined.generation_id) is ErrorCode.rebalance_in_progress
    go = groups.store.hold_next()
    coordinator.leave("g", [member])
    first = asyncio.create_task(groups.commit(10))
    await groups.store.held()
    late = asyncio.create_task(groups.commit(5, member, joined.generation_id))
    await groups.pass_loop()
    go.set()
    assert await first is ErrorCode.none
    assert await late is ErrorCode.unknown_member_id
    assert await groups.committed() == [10]


async def test_deleting_a_group_takes_nothing_from_members_that_come_meanwhile() -> None:
    groups = Groups()
    coordinator = groups.coordinator
    await groups.commit(10)
    go = groups.store.hold_next()
    deleting = asyncio.create_task(coordinator.delete("g"))
    await groups.store.held()
    joined = await coordinator.join("g", JOIN)
    assert joined.error is ErrorCode.none
    member = MemberIdentity(member_id=joined.member_id)
    go.set()
    assert await deleting is ErrorCode.none
    assert coordinator.heartbeat("g", member, joined.generation_id) is ErrorCode.none
    coordinator.close()


async def test_what_is_committed_while_an_idle_group_expires_stays() -> None:
    groups = Groups()
    clock = ManualClock()
    cleanup = OffsetCleanup(
        groups=groups.coordinator, view=groups.view, clock=clock, retention_ms=1000
    )
    await groups.commit(10)
    await cleanup.run()
    clock.now += 2000
    go = groups.store.hold_next()
    expiring = asyncio.create_task(cleanup.run())
    await groups.store.held()
    committing = asyncio.create_task(groups.commit(20))
    await groups.pass_loop()
    go.set()
    await expiring
    assert await committing is ErrorCode.none
    assert await groups.committed() == [20]
