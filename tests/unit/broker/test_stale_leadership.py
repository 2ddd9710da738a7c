"""A partition is hosted as the cluster is now, not as it was when its log began to be loaded."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from aquifer_broker.cluster.hosted_partitions import HostedPartitions
from aquifer_broker.cluster.view import ClusterUpdate, ClusterView, TopicInfo
from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_manager import LogManager
from fixtures.held_disk import HeldCall
from fixtures.tiered_broker import tiered_topic
from kio.schema.errors import ErrorCode


@pytest.fixture
async def logs(tmp_path: Path) -> AsyncIterator[LogManager]:
    async with LogManager([tmp_path], broker_id=1, cluster_id="cluster") as made:
        yield made


def _update(view: ClusterView, *topics: TopicInfo, deleted: TopicInfo | None = None) -> None:
    view.apply(
        ClusterUpdate(
            version=view.version + 1,
            topics=topics,
            deleted_topic_ids=() if deleted is None else (deleted.topic_id,),
        )
    )


def _at_other_broker(topic: TopicInfo) -> TopicInfo:
    (first,) = topic.partitions
    return replace(topic, partitions=(replace(first, leader=2, leader_epoch=9),))


@pytest.mark.parametrize("change", ["another leader", "deleted"])
async def test_a_partition_that_changes_while_its_log_is_loaded_is_not_led_as_before(
    logs: LogManager, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Others may take their turn first, and theirs may take long."""
    view = ClusterView()
    partitions = HostedPartitions(node_id=1, view=view, logs=logs, defaults=LogConfig())
    changed, slow = tiered_topic("changed"), tiered_topic("slow")
    first = HeldCall(monkeypatch, "fsync", lambda path: "/changed-0/" in path)
    second = HeldCall(monkeypatch, "fsync", lambda path: "/slow-0/" in path)
    _update(view, changed, slow)
    async with partitions.loop:
        await first.wait_reached()
        if change == "deleted":
            _update(view, deleted=changed)
        else:
            _update(view, _at_other_broker(changed))
        first.let_go()
        await second.wait_reached()

        answer = partitions.leader("changed", 0)
        second.let_go()

        assert answer in (ErrorCode.not_leader_or_follower, ErrorCode.unknown_topic_or_partition)
        assert await partitions.wait_settled(60)
        hosted = partitions.get("changed", 0)
        if change == "deleted":
            assert hosted is None
        else:
            assert hosted is not None
            assert (hosted.is_leader, hosted.leader_epoch) == (False, 9)
        assert not isinstance(partitions.leader("slow", 0), ErrorCode)
