"""A broker that lost files it can make anew: nothing of the log is lost with them."""

import asyncio
from pathlib import Path
from typing import Final

import pytest
from fixtures.kafka_traffic import assert_same, consume, produce, records_of
from fixtures.suite import CHAOS_GROUP, RunningSuite
from fixtures.tiered_topic import MakeTopic

pytestmark = pytest.mark.xdist_group(CHAOS_GROUP)

LOST: Final = {
    "checkpoints": (
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        ".kafka_cleanshutdown",
    ),
    "log starts": ("log-start-offset-checkpoint", ".kafka_cleanshutdown"),
    "indexes": ("{log}/*.index", "{log}/*.timeindex", ".kafka_cleanshutdown"),
    "leader epochs": ("{log}/leader-epoch-checkpoint",),
    "producer snapshots": ("{log}/*.snapshot", ".kafka_cleanshutdown"),
}


def lose(log: Path, patterns: tuple[str, ...]) -> int:
    """Remove files of a log dir; how many."""
    files = [file for pattern in patterns for file in log.parent.glob(pattern.format(log=log.name))]
    for file in files:
        file.unlink()
    return len(files)


@pytest.mark.parametrize("what", LOST)
async def test_a_broker_without_files_it_can_make_anew_serves_both_tiers(
    chaos_suite: RunningSuite, chaos_topics: MakeTopic, what: str
) -> None:
    """As FetchFromLeaderWithCorruptedCheckpointTest, and further (K-7.1)."""
    topic = await chaos_topics()
    acked = await asyncio.to_thread(produce, chaos_suite.bootstrap, topic.name, records_of(300))
    before = await topic.until_cold()
    async with chaos_suite.down("broker-1"):
        assert lose(topic.folder(), LOST[what])
    assert await topic.until_copied() == before
    acked += await asyncio.to_thread(
        produce, chaos_suite.bootstrap, topic.name, records_of(200, seed=1)
    )
    after = await topic.until_cold()
    assert after.local_start > before.local_start
    assert_same(
        await asyncio.to_thread(consume, chaos_suite.bootstrap, topic.name, len(acked)), acked
    )
