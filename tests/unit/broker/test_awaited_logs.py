"""Partitions that are held back until their logs were compared with remote storage."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from aquifer_broker.cluster.hosted_partitions import (
    HostedPartition,
    HostedPartitions,
    LeadershipListener,
)
from aquifer_broker.cluster.view import ClusterUpdate, ClusterView
from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_manager import LogManager
from fixtures.polling import eventually
from fixtures.tiered_broker import tiered_topic
from kio.schema.errors import ErrorCode

PARTITIONS = 20
WAIT_S = 60.0


class Broker:
    """What is hosted on a broker whose awaited logs only the test confirms."""

    def __init__(self, logs: LogManager) -> None:
        self.view = ClusterView()
        self.partitions = HostedPartitions(
            node_id=1, view=self.view, logs=logs, defaults=LogConfig(), remote_storage=True
        )
        self.version = 0

    async def create(self, **configs: str) -> None:
        """A topic whose logs are all held back."""
        topic = tiered_topic("events", **configs)
        (first,) = topic.partitions
        partitions = tuple(replace(first, partition=number) for number in range(PARTITIONS))
        self.update(
            ClusterUpdate(
                version=1,
                is_snapshot=False,
                cluster_id="cluster",
                topics=(replace(topic, partitions=partitions),),
                deleted_topic_ids=(),
            )
        )
        await eventually(lambda: len(self.partitions.awaited.logs()) == PARTITIONS, WAIT_S)

    def update(self, update: ClusterUpdate) -> None:
        self.version += 1
        self.view.apply(replace(update, version=self.version))

    def hosted(self) -> list[int]:
        """Numbers of what is hosted."""
        return sorted(each.topic_id_partition.partition for each in self.partitions.hosted())


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with LogManager([tmp_path], broker_id=1, cluster_id="cluster") as logs:
        made = Broker(logs)
        async with made.partitions.loop:
            yield made


async def test_nothing_is_hosted_before_it_is_confirmed(broker: Broker) -> None:
    await broker.create()
    assert broker.hosted() == []
    assert broker.partitions.leader("events", 3) is ErrorCode.not_leader_or_follower
    assert not await broker.partitions.wait_settled(0.01)

    chosen = broker.partitions.awaited.logs()[3]
    await broker.partitions.confirm(chosen)
    await eventually(lambda: broker.hosted() == [3], WAIT_S)
    await broker.partitions.confirm(chosen)

    for each in broker.partitions.awaited.logs():
        broker.partitions.awaited.asked(each.topic_id_partition)
    assert await broker.partitions.wait_settled(WAIT_S)
    assert broker.hosted() == [3]


async def test_a_log_that_is_confirmed_while_others_of_its_topic_are_made_is_hosted(
    broker: Broker,
) -> None:
    await broker.create()
    first, *others = broker.partitions.awaited.logs()
    async with asyncio.TaskGroup() as group:

        def confirm_first(hosted: HostedPartition) -> None:
            if hosted.topic_id_partition.partition == 1:
                group.create_task(broker.partitions.confirm(first))

        broker.partitions.add_listener(
            LeadershipListener(on_hosted=confirm_first, on_stopped=lambda *_: None)
        )
        for each in others:
            await each.log.confirm_records()
        await broker.partitions.confirm(others[0])
        await eventually(lambda: len(broker.hosted()) == PARTITIONS, WAIT_S)


async def test_what_goes_away_is_awaited_no_more(broker: Broker) -> None:
    await broker.create()
    (topic,) = broker.view.topics.values()

    broker.update(
        ClusterUpdate(
            version=1,
            is_snapshot=False,
            cluster_id="cluster",
            topics=(),
            deleted_topic_ids=(topic.topic_id,),
        )
    )

    assert not broker.partitions.awaited.logs()
    assert await broker.partitions.wait_settled(WAIT_S)


async def test_a_topic_that_is_no_longer_tiered_waits_for_nothing(broker: Broker) -> None:
    await broker.create()
    (topic,) = broker.view.topics.values()
    plain = replace(topic, configs={"remote.storage.enable": "false"})

    broker.update(
        ClusterUpdate(
            version=1,
            is_snapshot=False,
            cluster_id="cluster",
            topics=(plain,),
            deleted_topic_ids=(),
        )
    )

    await eventually(lambda: len(broker.hosted()) == PARTITIONS, WAIT_S)
    assert not broker.partitions.awaited.logs()
