"""The view follows snapshots and deltas, and tells what changed."""

import asyncio

from aquifer_broker.cluster.view import (
    BrokerInfo,
    ClusterChange,
    ClusterUpdate,
    ClusterView,
    PartitionInfo,
    TopicInfo,
)
from aquifer_core.ids import KafkaUuid


def topic(name: str, leader: int = 1, topic_id: KafkaUuid | None = None) -> TopicInfo:
    partition = PartitionInfo(
        partition=0, replicas=(1,), isr=(1,), leader=leader, leader_epoch=leader
    )
    return TopicInfo(topic_id=topic_id or KafkaUuid.random(), name=name, partitions=(partition,))


def test_a_delta_replaces_only_what_it_names() -> None:
    view = ClusterView()
    kept, changed = topic("kept"), topic("changed")
    view.apply(ClusterUpdate(version=5, is_snapshot=True, cluster_id="c", topics=(kept, changed)))
    moved = topic("changed", leader=2, topic_id=changed.topic_id)
    change = view.apply(ClusterUpdate(version=6, topics=(moved,)))
    assert change.topics == (moved,)
    assert view.topic("kept") == kept
    assert view.topic_by_id(changed.topic_id) == moved
    assert (view.version, view.cluster_id) == (6, "c")


def test_an_old_delta_changes_nothing() -> None:
    view = ClusterView()
    view.apply(ClusterUpdate(version=5, is_snapshot=True, topics=(topic("t"),)))
    view.apply(ClusterUpdate(version=5, topics=(topic("late"),)))
    assert view.topic("late") is None


def test_a_snapshot_deletes_what_it_does_not_name() -> None:
    view = ClusterView()
    gone, kept = topic("gone"), topic("kept")
    view.apply(ClusterUpdate(version=1, is_snapshot=True, topics=(gone, kept)))
    change = view.apply(ClusterUpdate(version=9, is_snapshot=True, topics=(kept,)))
    assert change.deleted_topics == (gone,)
    assert change.topics == ()
    assert view.topic_by_id(gone.topic_id) is None


def test_a_topic_made_again_under_its_name_replaces_the_old_one() -> None:
    view = ClusterView()
    old, new = topic("t"), topic("t")
    view.apply(ClusterUpdate(version=1, is_snapshot=True, topics=(old,)))
    change = view.apply(ClusterUpdate(version=2, topics=(new,)))
    assert change.deleted_topics == (old,)
    assert view.topic("t") == new
    assert view.topic_by_id(old.topic_id) is None


def test_a_late_deletion_of_the_old_topic_leaves_the_new_one() -> None:
    view = ClusterView()
    old, new = topic("t"), topic("t")
    view.apply(ClusterUpdate(version=1, is_snapshot=True, topics=(old,)))
    view.apply(ClusterUpdate(version=2, topics=(new,)))
    view.apply(ClusterUpdate(version=3, deleted_topic_ids=(old.topic_id,)))
    assert view.topic("t") == new


def test_listeners_hear_of_changes_only() -> None:
    view = ClusterView()
    heard: list[ClusterChange] = []
    view.on_change(heard.append)
    update = ClusterUpdate(
        version=1, is_snapshot=True, brokers=(BrokerInfo(broker_id=1, incarnation="i"),)
    )
    view.apply(update)
    view.apply(ClusterUpdate(version=2))
    assert [change.brokers_changed for change in heard] == [True]


async def test_waiting_ends_with_the_update_that_makes_the_condition_true() -> None:
    view = ClusterView()
    waiting = asyncio.create_task(view.wait_until(lambda: view.topic("t") is not None, 5))
    await asyncio.sleep(0)
    view.apply(ClusterUpdate(version=1, topics=()))
    view.apply(ClusterUpdate(version=2, topics=(topic("t"),)))
    assert await waiting
    assert not await view.wait_until(lambda: False, 0.01)


def test_settings_of_one_broker_are_over_those_of_all() -> None:
    view = ClusterView()
    configs = {"": {"a": "all", "b": "all"}, "1": {"b": "one"}}
    view.apply(ClusterUpdate(version=1, is_snapshot=True, broker_configs=configs))
    assert view.broker_configs(1) == {"a": "all", "b": "one"}
    assert view.broker_configs(2) == {"a": "all", "b": "all"}
