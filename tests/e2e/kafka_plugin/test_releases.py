"""The same jar in older releases of Apache Kafka, whose storage API has fewer methods."""

import asyncio
from pathlib import Path

import pytest
from aquifer_standalone.kafka.cluster import KafkaCluster
from aquifer_standalone.kafka.installation import NEWEST, VERSIONS, KafkaUnavailableError, install
from fixtures.kafka_cluster import (
    KAFKA_GROUP,
    GuestCluster,
    KafkaSuite,
    in_a_loop,
    kafka_stack_settings,
    kafka_topics_of,
)
from fixtures.kafka_traffic import assert_same, consume, records_of
from fixtures.supervised import running, skip_unless_ci

pytestmark = [pytest.mark.xdist_group(KAFKA_GROUP), pytest.mark.timeout(900)]


@pytest.mark.parametrize("version", [each for each in VERSIONS if each != NEWEST])
def test_an_older_release_tiers_and_reads_back(
    kafka_suite: KafkaSuite, kafka_plugin: Path, tmp_path: Path, version: str
) -> None:
    try:
        installation = in_a_loop(lambda: install(version))
    except KafkaUnavailableError as error:
        skip_unless_ci(f"Apache Kafka {version}", error)
    stack = kafka_suite.stack
    settings = kafka_stack_settings(tmp_path, installation, kafka_plugin, brokers=1).kafka
    assert settings is not None
    settings = stack.on_these_services(settings)
    cluster = KafkaCluster(settings, tmp_path)
    [spec] = cluster.specs()
    with running(spec, tmp_path):
        asyncio.run(_tier_and_read(GuestCluster(kafka_suite, cluster)))


async def _tier_and_read(suite: KafkaSuite) -> None:
    async with kafka_topics_of(suite) as make:
        topic = await make(batches=2)
        acked = await topic.produce(records_of(7))
        offsets = await topic.until_cold()
        assert offsets.local_start == 6
        found = await asyncio.to_thread(consume, suite.bootstrap, topic.name, 7)
        assert_same(found, acked)
        await topic.alter(retention_bytes="1")
        await topic.until_offsets(log_start=6)
