"""Topics whose rolled segments are remote, and only there."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from aquifer_standalone.demo.tiers import ManagerTierWatch, PartitionTiers
from aquifer_standalone.stack import Stack
from bench import load

_DEADLINE_S = 300.0


def rolled_files(suite: Stack, topic: str) -> list[Path]:
    """Every `.log` file but the last of each partition."""
    folders = sorted(suite.log_dir(1).glob(f"{topic}-*"))
    return [file for folder in folders for file in sorted(folder.glob("*.log"))[:-1]]


async def copy_all(suite: Stack, topic: str, partitions: int) -> None:
    """Enables tiering and waits until all rolled segments are remote."""
    rolled_bytes = sum(file.stat().st_size for file in rolled_files(suite, topic))
    await asyncio.to_thread(
        load.set_topic_config, suite.bootstrap, topic, {"remote.storage.enable": "true"}
    )
    await _until(
        suite,
        topic,
        partitions,
        lambda states: (
            sum(state.remote_bytes for state in states) >= rolled_bytes
            and all(
                state.highest_remote_offset > 0 and not state.copy_lag_bytes for state in states
            )
        ),
    )


async def drop_local(suite: Stack, topic: str, partitions: int) -> Mapping[int, int]:
    """Lets local retention drop what is remote: partition -> first local offset."""
    config = {"local.retention.bytes": "1"}
    await asyncio.to_thread(load.set_topic_config, suite.bootstrap, topic, config)
    states = await _until(
        suite,
        topic,
        partitions,
        lambda states: all(
            state.local_log_start_offset == state.highest_remote_offset + 1 for state in states
        ),
    )
    return {state.partition: state.local_log_start_offset for state in states}


async def restart(suite: Stack, *names: str) -> None:
    """Stops and starts parts, so that nothing is left in their memory."""
    for name in names:
        child = suite.supervisor.child(name)
        await child.stop()
        await child.start()


async def _until(
    suite: Stack, topic: str, partitions: int, done: Callable[[list[PartitionTiers]], bool]
) -> list[PartitionTiers]:
    states: list[PartitionTiers] = []
    async with ManagerTierWatch.open(suite, topic, partitions) as tiers:
        async for read in tiers.until(done, timeout_s=_DEADLINE_S):
            states = read
    return states
