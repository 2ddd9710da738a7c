"""Offsets that nobody needs any more."""

from dataclasses import replace

import pytest
from aquifer_broker.cluster.ports import GroupOffset
from aquifer_broker.cluster.view import BrokerInfo, ClusterUpdate, ClusterView, TopicInfo
from aquifer_broker.coordination.group_coordinator import GroupCoordinator
from aquifer_broker.coordination.group_values import GroupSettings, JoinRequest, MemberIdentity
from aquifer_broker.coordination.offset_cleanup import OffsetCleanup
from aquifer_core.errors import UnavailableError
from aquifer_core.ids import KafkaUuid
from fixtures.broker_logs import ManualClock
from fixtures.cluster_metadata import InMemoryClusterMetadata
from kio.schema.errors import ErrorCode

RETENTION_MS = 1000
TOPIC = TopicInfo(topic_id=KafkaUuid.random(), name="t", partitions=())
JOIN = JoinRequest(
    identity=MemberIdentity(member_id=""),
    client_id="c",
    client_host="h",
    session_timeout_ms=1_000_000,
    rebalance_timeout_ms=10_000,
    protocol_type="consumer",
    protocols=(("range", b""),),
)


class Cleaning:
    """A coordinator with its offsets and the cleaning of them."""

    def __init__(self, store: InMemoryClusterMetadata | None = None) -> None:
        self.clock = ManualClock()
        self.store = store or InMemoryClusterMetadata()
        self.view = ClusterView()
        self.groups = GroupCoordinator(
            node_id=1,
            view=self.view,
            offsets=self.store,
            settings=GroupSettings(initial_rebalance_delay_ms=0),
        )
        self.cleanup = OffsetCleanup(
            groups=self.groups, view=self.view, clock=self.clock, retention_ms=RETENTION_MS
        )
        self.see(1, topics=(TOPIC,))

    def see(self, broker_id: int, topics: tuple[TopicInfo, ...]) -> None:
        broker = BrokerInfo(broker_id=broker_id, incarnation="i")
        self.store.brokers = {broker_id: broker}
        self.view.apply(
            ClusterUpdate(
                version=self.view.version + 1, is_snapshot=True, brokers=(broker,), topics=topics
            )
        )

    async def commit(self, topic: str = "t", partition: int = 0) -> None:
        offset = GroupOffset(
            topic=topic, partition=partition, offset=5, commit_timestamp_ms=self.clock.now_ms()
        )
        await self.store.commit_offsets("g", [offset])

    async def left(self) -> list[tuple[str, int]]:
        return sorted(
            (each.topic, each.partition) for each in await self.store.fetch_offsets("g", None)
        )


async def test_an_idle_group_goes_when_its_last_commit_is_old_enough() -> None:
    cleaning = Cleaning()
    await cleaning.cleanup.run()
    await cleaning.commit(partition=0)
    await cleaning.cleanup.run()
    cleaning.clock.now += RETENTION_MS
    await cleaning.commit(partition=1)
    await cleaning.cleanup.run()
    cleaning.clock.now += RETENTION_MS
    await cleaning.cleanup.run()
    assert await cleaning.left() == [("t", 0), ("t", 1)]
    cleaning.clock.now += 1
    await cleaning.cleanup.run()
    assert await cleaning.left() == []


async def test_a_group_with_members_keeps_its_offsets() -> None:
    cleaning = Cleaning()
    await cleaning.commit()
    joined = await cleaning.groups.join("g", JOIN)
    cleaning.clock.now += 10 * RETENTION_MS
    await cleaning.cleanup.run()
    assert await cleaning.left() == [("t", 0)]
    cleaning.groups.leave("g", [MemberIdentity(member_id=joined.member_id)])
    cleaning.groups.close()


async def test_a_group_keeps_its_offsets_for_the_whole_retention_after_its_last_member_left() -> (
    None
):
    """Consumers of a quiet topic commit nothing: the time begins when the group becomes empty (KIP-211)."""
    cleaning = Cleaning()
    await cleaning.commit()
    await cleaning.cleanup.run()
    cleaning.clock.now += RETENTION_MS // 2
    joined = await cleaning.groups.join("g", JOIN)
    cleaning.groups.leave("g", [MemberIdentity(member_id=joined.member_id)])
    cleaning.clock.now += RETENTION_MS - 1
    await cleaning.cleanup.run()
    cleaning.clock.now += RETENTION_MS
    await cleaning.cleanup.run()
    assert await cleaning.left() == [("t", 0)]
    cleaning.clock.now += 1
    await cleaning.cleanup.run()
    assert await cleaning.left() == []


async def test_a_coordinator_that_has_just_begun_waits_for_members_of_the_groups_it_found() -> None:
    """After a restart, or a move of its coordinator, a group that lives has not joined again yet."""
    before = Cleaning()
    await before.commit()
    after = Cleaning(before.store)
    after.clock.now += 10 * RETENTION_MS
    await after.cleanup.run()
    assert await after.left() == [("t", 0)]
    after.clock.now += RETENTION_MS + 1
    await after.cleanup.run()
    assert await after.left() == []


async def test_a_group_that_another_broker_coordinated_meanwhile_begins_anew() -> None:
    cleaning = Cleaning()
    await cleaning.commit()
    await cleaning.cleanup.run()
    cleaning.see(2, topics=(TOPIC,))
    cleaning.clock.now += 10 * RETENTION_MS
    cleaning.see(1, topics=(TOPIC,))
    await cleaning.cleanup.run()
    assert await cleaning.left() == [("t", 0)]
    cleaning.see(2, topics=(TOPIC,))
    await cleaning.cleanup.run()
    cleaning.clock.now += 10 * RETENTION_MS
    cleaning.see(1, topics=(TOPIC,))
    await cleaning.cleanup.run()
    assert await cleaning.left() == [("t", 0)]


async def test_groups_that_have_neither_members_nor_offsets_are_forgotten() -> None:
    cleaning = Cleaning()
    alone = MemberIdentity(member_id="")
    refused = await cleaning.groups.join("refused", replace(JOIN, session_timeout_ms=1))
    assert refused.error is ErrorCode.invalid_session_timeout
    promised = replace(JOIN, requires_known_member_id=True)
    assert (await cleaning.groups.join("coming", promised)).error is ErrorCode.member_id_required
    offset = GroupOffset(
        topic="t", partition=0, offset=5, commit_timestamp_ms=cleaning.clock.now_ms()
    )
    assert await cleaning.groups.commit("g", alone, -1, [offset]) is ErrorCode.none
    await cleaning.cleanup.run()
    assert {each.group_id for each in cleaning.groups.groups()} == {"g", "coming"}
    for _ in range(2):
        cleaning.clock.now += RETENTION_MS + 1
        await cleaning.cleanup.run()
    assert await cleaning.left() == []
    assert {each.group_id for each in cleaning.groups.groups()} == {"coming"}
    cleaning.groups.close()


async def test_groups_of_other_coordinators_are_left_alone() -> None:
    cleaning = Cleaning()
    await cleaning.commit()
    cleaning.see(2, topics=(TOPIC,))
    cleaning.clock.now += 10 * RETENTION_MS
    await cleaning.cleanup.run()
    assert await cleaning.left() == [("t", 0)]


async def test_offsets_of_a_deleted_topic_go_and_those_of_its_successor_stay() -> None:
    cleaning = Cleaning()
    await cleaning.commit("t", 0)
    await cleaning.commit("other", 0)
    cleaning.see(1, topics=())
    cleaning.clock.now += 1
    await cleaning.commit("t", 1)
    await cleaning.cleanup.run()
    assert await cleaning.left() == [("other", 0), ("t", 1)]


async def test_a_deletion_that_could_not_be_followed_is_followed_later() -> None:
    cleaning = Cleaning()
    await cleaning.commit()
    cleaning.see(1, topics=())
    cleaning.store.available = False
    with pytest.raises(UnavailableError):
        await cleaning.cleanup.run()
    cleaning.store.available = True
    await cleaning.cleanup.run()
    assert await cleaning.left() == []
