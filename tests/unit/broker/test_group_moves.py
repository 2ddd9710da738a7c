"""A broker keeps a group only as long as it was its coordinator without a gap, and writes its offsets only as long as it still is."""

import asyncio
import itertools

import pytest
from aquifer_broker.cluster.ports import Coordination, GroupOffset
from aquifer_broker.cluster.view import BrokerInfo, ClusterUpdate, ClusterView
from aquifer_broker.coordination.group_coordinator import GroupCoordinator
from aquifer_broker.coordination.group_placement import GroupRefusedError
from aquifer_broker.coordination.group_values import GroupSettings, JoinRequest, MemberIdentity
from aquifer_broker.coordination.offset_cleanup import OffsetCleanup
from aquifer_broker.coordination.placement import coordinator_of
from aquifer_core.errors import ConcurrentUpdateError, UnavailableError
from fixtures.broker_logs import ManualClock
from fixtures.cluster_metadata import InMemoryClusterMetadata
from kio.schema.errors import ErrorCode

HERE, OTHER = 1, 2
JOIN = JoinRequest(
    identity=MemberIdentity(member_id=""),
    client_id="c",
    client_host="h",
    session_timeout_ms=1_000_000,
    rebalance_timeout_ms=1_000_000,
    protocol_type="consumer",
    protocols=(("range", b""),),
)


def group_of(broker_id: int) -> str:
    """A group that the broker coordinates when both live."""
    names = (f"g-{number}" for number in itertools.count())
    return next(name for name in names if coordinator_of(name, (HERE, OTHER)) == broker_id)


MOVING, STAYING = group_of(OTHER), group_of(HERE)


class Cluster:
    """Two brokers of which one is looked at; it sees the cluster only when it is told to look."""

    def __init__(self) -> None:
        self.store = InMemoryClusterMetadata()
        self.view = ClusterView()
        self.groups = GroupCoordinator(
            node_id=HERE,
            view=self.view,
            offsets=self.store,
            settings=GroupSettings(initial_rebalance_delay_ms=0),
        )
        self.members: dict[str, tuple[MemberIdentity, int]] = {}

    async def register(self) -> None:
        """This broker gets a lease."""
        lease = await self.store.register_broker(BrokerInfo(broker_id=HERE, incarnation="i"))
        self.groups.registered_as(lease.broker_epoch)

    async def other_comes(self) -> None:
        """The other broker gets a lease."""
        await self.store.register_broker(BrokerInfo(broker_id=OTHER, incarnation="j"))

    def look(self) -> None:
        """This broker sees the cluster as it is."""
        self.view.apply(
            ClusterUpdate(
                version=self.store.version,
                is_snapshot=True,
                brokers=tuple(self.store.brokers.values()),
            )
        )

    async def begin(self) -> "Cluster":
        """This broker is alone and has a member in both groups."""
        await self.register()
        self.look()
        for group_id in (MOVING, STAYING):
            joined = await self.groups.join(group_id, JOIN)
            assert joined.error is ErrorCode.none
            member = MemberIdentity(member_id=joined.member_id)
            self.members[group_id] = member, joined.generation_id
        return self

    def known(self, group_id: str) -> bool:
        """Whether the group's member may go on."""
        return self.groups.heartbeat(group_id, *self.members[group_id]) is ErrorCode.none

    async def commit(self, offset: int, group_id: str = MOVING) -> ErrorCode:
        """Commit of a consumer that belongs to no group of members."""
        value = GroupOffset(topic="t", partition=0, offset=offset)
        return await self.groups.commit(group_id, MemberIdentity(member_id=""), -1, [value])

    async def stored(self, group_id: str = MOVING) -> list[int]:
        return [each.offset for each in await self.store.fetch_offsets(group_id, None)]


async def test_a_group_that_was_away_and_is_back_between_two_looks_begins_anew() -> None:
    cluster = await Cluster().begin()
    await cluster.other_comes()
    await cluster.store.expire(OTHER)
    cluster.look()
    assert not cluster.known(MOVING)
    assert cluster.known(STAYING)
    cluster.groups.close()


async def test_a_broker_that_comes_and_goes_costs_no_group_twice() -> None:
    cluster = await Cluster().begin()
    await cluster.other_comes()
    cluster.look()
    assert cluster.groups.refusal(MOVING) is ErrorCode.not_coordinator
    await cluster.store.expire(OTHER)
    cluster.look()
    joined = await cluster.groups.join(MOVING, JOIN)
    cluster.members[MOVING] = MemberIdentity(member_id=joined.member_id), joined.generation_id
    cluster.store.broker_configs[""] = {"a": "b"}
    cluster.look()
    assert cluster.known(MOVING)
    assert cluster.known(STAYING)
    cluster.groups.close()


async def test_all_groups_begin_anew_under_a_new_lease() -> None:
    cluster = await Cluster().begin()
    await cluster.store.expire(HERE)
    await cluster.register()
    cluster.look()
    assert not cluster.known(MOVING)
    assert not cluster.known(STAYING)
    cluster.groups.close()


async def test_a_commit_under_a_lease_that_is_over_is_refused() -> None:
    cluster = Cluster()
    await cluster.register()
    cluster.look()
    assert await cluster.commit(10) is ErrorCode.none
    await cluster.store.expire(HERE)
    assert await cluster.commit(11) is ErrorCode.not_coordinator
    assert await cluster.stored() == [10]


@pytest.mark.parametrize(
    ("group_id", "outcome"),
    [(STAYING, ErrorCode.none), (MOVING, ErrorCode.not_coordinator)],
)
async def test_a_commit_waits_until_a_new_broker_is_seen_and_is_decided_anew(
    group_id: str, outcome: ErrorCode
) -> None:
    cluster = Cluster()
    await cluster.register()
    cluster.look()
    await cluster.other_comes()
    committing = asyncio.create_task(cluster.commit(10, group_id))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not committing.done()
    cluster.look()
    assert await committing is outcome
    assert await cluster.stored(group_id) == ([] if outcome else [10])


async def test_deletions_are_refused_as_commits_are() -> None:
    """Of a group, and by the cleanup, which goes on with others."""
    cluster = Cluster()
    await cluster.register()
    cluster.look()
    clock = ManualClock()
    cleanup = OffsetCleanup(
        groups=cluster.groups, view=cluster.view, clock=clock, retention_ms=1000
    )
    await cluster.commit(10)
    await cleanup.run()
    clock.now += 2000
    await cluster.store.expire(HERE)
    await cleanup.run()
    with pytest.raises(GroupRefusedError):
        await cluster.groups.delete(MOVING)
    assert await cluster.stored() == [10]


async def test_an_idle_group_is_not_expired_by_what_was_seen_under_an_earlier_lease() -> None:
    cluster = Cluster()
    await cluster.register()
    cluster.look()
    clock = ManualClock()
    cleanup = OffsetCleanup(
        groups=cluster.groups, view=cluster.view, clock=clock, retention_ms=1000
    )
    await cluster.commit(10)
    await cleanup.run()
    clock.now += 2000
    await cluster.store.expire(HERE)
    await cluster.register()
    cluster.look()
    await cleanup.run()
    assert await cluster.stored() == [10]


class ConflictingStore(InMemoryClusterMetadata):
    """The database refuses every transaction for a conflict of its own."""

    async def commit_offsets(
        self,
        group_id: str,
        offsets: object,
        coordination: Coordination | None = None,
    ) -> None:
        raise ConcurrentUpdateError("the database refused a conflicting transaction repeatedly")


async def test_a_conflict_of_the_database_is_for_the_client_to_repeat() -> None:
    """Kafka's code for conflicts is one of transactions, which consumers do not repeat."""
    cluster = Cluster()
    cluster.groups = GroupCoordinator(
        node_id=HERE, view=cluster.view, offsets=ConflictingStore(), settings=GroupSettings()
    )
    await cluster.register()
    cluster.look()
    with pytest.raises(UnavailableError):
        await cluster.commit(10)
