"""Topics whose rolled segments are remote, and only there."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

from aquifer.manager.v1 import remote_log_manager_service_pb2 as pb
from aquifer.manager.v1.remote_log_manager_service_pb2_grpc import RemoteLogManagerServiceStub
from aquifer_rpc import convert
from aquifer_rpc.calls import call_stream
from aquifer_rpc.channel import connect
from aquifer_standalone.demo.tiers import ManagerTierWatch, PartitionTiers
from aquifer_standalone.stack import Stack
from bench import load
from fixtures.polling import eventually
from fixtures.remote_index_reach import indexed_until

_DEADLINE_S = 300.0
_CALL_S = 10.0
_POLL_S = 0.25


def rolled_files(suite: Stack, topic: str) -> list[Path]:
    """Every `.log` file but the last of each partition."""
    folders = sorted(suite.log_dir(1).glob(f"{topic}-*"))
    return [file for folder in folders for file in sorted(folder.glob("*.log"))[:-1]]


async def copy_all(suite: Stack, topic: str, partitions: int) -> None:
    """Enables tiering and waits until all rolled segments are remote, by the manager's word and then by the bucket's.

    The bucket is looked at when the manager is through: listing it again and again would be measured as well.
    """
    rolled_bytes = sum(file.stat().st_size for file in rolled_files(suite, topic))
    last_offsets = _last_rolled_offsets(suite, topic)
    await asyncio.to_thread(
        load.set_topic_config, suite.bootstrap, topic, {"remote.storage.enable": "true"}
    )
    async with connect([suite.address("manager")]) as channel:
        manager = RemoteLogManagerServiceStub(channel)

        async def is_remote() -> bool:
            return await _remote_offsets(manager, topic) == last_offsets

        await eventually(is_remote, timeout_s=_DEADLINE_S, interval_s=_POLL_S)
    await _until(
        suite,
        topic,
        partitions,
        lambda states: sum(state.remote_bytes for state in states) >= rolled_bytes,
    )


def _last_rolled_offsets(suite: Stack, topic: str) -> dict[int, int]:
    """Partition -> the last offset before its active segment."""
    found = {}
    for folder in suite.log_dir(1).glob(f"{topic}-*"):
        active = max(int(file.stem) for file in folder.glob("*.log"))
        found[int(folder.name.rpartition("-")[2])] = active - 1
    return found


async def _remote_offsets(manager: Any, topic: str) -> dict[int, int]:
    """Partition -> the last offset that is remote, as the manager knows it."""
    request = pb.ListPartitionsRequest(topic=topic)
    pages = call_stream(manager.ListPartitions, request, deadline_s=_CALL_S)
    async with aclosing(pages):
        return {
            state.topic_id_partition.partition: state.highest_remote_offset
            async for page in pages
            for state in page.partitions
        }


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


async def until_indexed(suite: Stack, topic: str, starts: Mapping[int, int]) -> None:
    """Waits until the manager's local remote indexes reach the first local offset of each partition."""
    request = pb.ListPartitionsRequest(topic=topic)
    async with connect([suite.address("manager")]) as channel:
        stub = RemoteLogManagerServiceStub(channel)
        pages = call_stream(stub.ListPartitions, request, deadline_s=_CALL_S)
        async with aclosing(pages):
            states = [state async for page in pages for state in page.partitions]
    tips = [convert.tip_from_pb(state.topic_id_partition) for state in states]

    def reached() -> bool:
        return all(
            indexed_until(suite.settings.data_dir, tip) >= starts[tip.partition] - 1 for tip in tips
        )

    await eventually(reached, timeout_s=_DEADLINE_S, interval_s=_POLL_S)


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
