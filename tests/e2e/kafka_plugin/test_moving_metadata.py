"""A cluster with Kafka's own metadata topic moves to the metadata service, and back."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from aquifer_standalone.kafka.cluster import KafkaCluster, KafkaSettings
from fixtures.admin_command import AdminCommand
from fixtures.kafka_cluster import (
    KAFKA_GROUP,
    SETTLE_S,
    GuestCluster,
    KafkaSuite,
    KafkaTopic,
    kafka_stack_settings,
    tiered_configs,
)
from fixtures.kafka_traffic import Record, assert_same, consume, records_of
from fixtures.polling import eventually
from fixtures.scrub import scrub_topic, stored_objects
from fixtures.supervised import running

pytestmark = [pytest.mark.xdist_group(KAFKA_GROUP), pytest.mark.timeout(900)]

_COMMANDS_S: Final = 180.0
"""Time for a few runs of the command on a busy machine."""

TOPIC_BASED: Final[dict[str, str | None]] = {
    "remote.log.metadata.manager.class.name": (
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
    ),
    "remote.log.metadata.manager.class.path": None,
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "rlmm.config.aquifer.metadata.endpoints": None,
    "rlmm.config.aquifer.telemetry.endpoint": None,
    "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "50",
    "rlmm.config.remote.log.metadata.topic.min.isr": "1",
}


class Mover:
    """One broker that is started again and again on the same data, with one or the other keeper of metadata."""

    def __init__(self, host: KafkaSuite, settings: KafkaSettings, folder: Path) -> None:
        self._host = host
        self._settings = settings
        self._folder = folder
        stack = host.stack
        self.admin = AdminCommand(
            metadata=stack.address("metadata"), storage=stack.address("storage")
        )

    @contextmanager
    def broker(self, properties: dict[str, str | None] | None = None) -> Iterator[GuestCluster]:
        more = {**self._settings.properties, **(properties or {})}
        cluster = KafkaCluster(replace(self._settings, properties=more), self._folder)
        [spec] = cluster.specs()
        with running(spec, self._folder):
            yield GuestCluster(self._host, cluster)

    async def move(self, verb: str, suite: KafkaSuite, *options: str) -> dict[str, Any]:
        """Run `aquifer metadata import` or `export`; how many segments were treated how."""
        where = ("--bootstrap-server", suite.bootstrap)
        answer = await self.admin.json("metadata", verb, *where, *options)
        return {key: answer[key] for key in ("add", "advance", "remove", "known", "remember")}


async def topic_on(suite: KafkaSuite, name: str) -> KafkaTopic:
    """The topic as the broker has it now."""
    topic = KafkaTopic(suite, name, 1)
    await topic.refresh()
    return topic


async def assert_all_there(topic: KafkaTopic, acked: list[Record]) -> None:
    found = await asyncio.to_thread(consume, topic.suite.bootstrap, topic.name, len(acked))
    assert_same(found, acked)


def test_a_cluster_moves_to_the_metadata_service_and_back(
    kafka_suite: KafkaSuite, kafka_plugin: Path, tmp_path: Path
) -> None:
    """What the topic knows is read through the service afterwards, and the other way round (K-1.4, SR-3, SR-29)."""
    installation = kafka_suite.cluster.settings.installation
    settings = kafka_stack_settings(tmp_path, installation, kafka_plugin, brokers=1).kafka
    assert settings is not None
    mover = Mover(kafka_suite, kafka_suite.stack.on_these_services(settings), tmp_path)
    name = "moved"
    with mover.broker(TOPIC_BASED) as suite:
        asyncio.run(_expire_and_import(mover, suite))
        acked = asyncio.run(_tier_and_import(mover, suite, name))
    with mover.broker() as suite:
        acked = asyncio.run(_go_on_and_export(mover, suite, name, acked))
    with mover.broker(TOPIC_BASED) as suite:
        asyncio.run(_delete_and_import(mover, suite, name, acked))


async def _expire_and_import(mover: Mover, suite: KafkaSuite) -> None:
    """Every segment is gone; how far their leader epoch reached is known to the service afterwards (K-2)."""
    topic = KafkaTopic(suite, "expired", 1)
    await topic.create_on(tiered_configs(), [[1]])
    await topic.produce(records_of(4))
    await topic.until_offsets(local_start=3, tiered=2)
    await topic.alter(retention_bytes="1")
    await topic.until_offsets(log_start=3)
    nothing = {"add": 0, "advance": 0, "remove": 0, "known": 0, "remember": 0}

    async def deletions_are_in_the_topic() -> int:
        """Number of leader epochs to remember: more than one when the broker was away for a moment."""
        moved = await mover.move("import", suite, "--topic", topic.name)
        assert moved == {**nothing, "remember": moved["remember"]}, moved
        return int(moved["remember"])

    epochs = await eventually(deletions_are_in_the_topic, timeout_s=_COMMANDS_S, interval_s=1.0)
    moved = await mover.move("import", suite, "--topic", topic.name, "--apply")
    assert moved == {**nothing, "remember": epochs}
    assert not await topic.segments()
    async with suite.metadata_role() as metadata:
        asked = [await metadata.highest_offset_for_epoch(topic.tip(), each) for each in range(50)]
    found = [offset for offset in asked if offset is not None]
    assert (len(found), max(found)) == (epochs, 2)
    once_more = {**nothing, "known": epochs}
    assert await mover.move("import", suite, "--topic", topic.name) == once_more
    await topic.delete()


async def _tier_and_import(mover: Mover, suite: KafkaSuite, name: str) -> list[Record]:
    topic = KafkaTopic(suite, name, 1)
    await topic.create_on(tiered_configs(), [[1]])
    acked = await topic.produce(records_of(5))
    await topic.until_offsets(local_start=4, tiered=3)
    assert not await topic.segments()
    only = ("--topic", name)
    everything = {"add": 4, "advance": 0, "remove": 0, "known": 0, "remember": 0}
    assert await mover.move("import", suite, *only) == everything
    assert not await topic.segments()
    assert await mover.move("import", suite, *only, "--apply") == everything
    again = {**everything, "add": 0, "known": 4}
    assert await mover.move("import", suite, *only, "--apply") == again
    found = await topic.segments()
    assert [each.start_offset for each in found] == [0, 1, 2, 3]
    assert {each.state.name for each in found} == {"COPY_SEGMENT_FINISHED"}
    return acked


async def _go_on_and_export(
    mover: Mover, suite: KafkaSuite, name: str, acked: list[Record]
) -> list[Record]:
    topic = await topic_on(suite, name)
    await assert_all_there(topic, acked)
    acked = acked + await topic.produce(records_of(2, seed=1))
    await topic.until_offsets(local_start=6, tiered=5)
    await scrub_topic(suite, topic.tip())
    moved = {"add": 2, "advance": 0, "remove": 0, "known": 4, "remember": 0}
    assert await mover.move("export", suite, "--topic", name) == moved
    options = ("--topic", name, "--apply", "--replication-factor", "1")
    assert await mover.move("export", suite, *options) == moved
    return acked


async def _delete_and_import(
    mover: Mover, suite: KafkaSuite, name: str, acked: list[Record]
) -> None:
    topic = await topic_on(suite, name)

    async def kafkas_manager_is_initialized() -> bool:
        """Kafka's own fails reads of the remote part until it has found its topic."""
        await assert_all_there(topic, acked)
        return True

    await eventually(kafkas_manager_is_initialized, timeout_s=SETTLE_S, interval_s=1.0)
    await topic.produce(records_of(1, seed=2))
    await topic.until_offsets(local_start=7, tiered=6)
    await topic.delete()
    await eventually(
        lambda: not stored_objects(suite, topic.tip()), timeout_s=SETTLE_S, interval_s=0.1
    )

    async def deletions_are_in_the_topic() -> bool:
        moved = await mover.move("import", suite)
        assert moved["remove"] == 6, moved
        return True

    await eventually(deletions_are_in_the_topic, timeout_s=_COMMANDS_S, interval_s=1.0)
    # The seventh segment was never known here.
    await mover.move("import", suite, "--apply")
    await topic.until_gone()
