"""Where the data of a topic lies: on brokers' disks and in the object store."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from aquifer.manager.v1 import remote_log_manager_service_pb2 as pb
from aquifer.manager.v1.remote_log_manager_service_pb2_grpc import RemoteLogManagerServiceStub
from aquifer_rpc.calls import call_stream
from aquifer_rpc.channel import Channel, connect
from rich.table import Table

from aquifer_standalone.stack import BUCKET, Stack

_POLL_S = 0.3
_CALL_S = 10.0
_STORE_S = 30.0
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTiers:
    """One partition: its offsets, and its bytes on both sides."""

    partition: int
    leader: int
    log_start_offset: int
    local_log_start_offset: int
    highest_remote_offset: int
    log_end_offset: int
    copy_lag_bytes: int
    local_bytes: int
    remote_bytes: int
    remote_objects: int


class TierWatch(ABC):
    """Watches a topic of a suite: its partitions, and what the bucket has of them."""

    def __init__(self, suite: Stack, topic: str, partitions: int) -> None:
        self._suite = suite
        self._topic = topic
        self._partitions = partitions

    @abstractmethod
    async def read(self) -> list[PartitionTiers]:
        """The partitions that are known, by number."""

    async def until(
        self, done: Callable[[list[PartitionTiers]], bool], *, timeout_s: float
    ) -> AsyncIterator[list[PartitionTiers]]:
        """What is read again and again, until all partitions are known and `done` accepts them.

        Raises:
            TimeoutError: `done` did not accept them in time.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            tiers = await self.read()
            yield tiers
            if len(tiers) == self._partitions and done(tiers):
                return
            if asyncio.get_running_loop().time() > deadline:
                raise TimeoutError(f"{self._topic}: not there after {timeout_s:.0f} s: {tiers}")
            await asyncio.sleep(_POLL_S)

    def stored(self) -> dict[int, tuple[int, int]]:
        """Partition -> (bytes, objects) in the bucket."""
        found: dict[int, tuple[int, int]] = {}
        client = self._suite.s3.target.client(timeout_s=_STORE_S)
        for item in client.list_objects(BUCKET, prefix=f"{self._topic}-", recursive=True):
            partition = int((item.object_name or "").split("/")[1])
            size, count = found.get(partition, (0, 0))
            found[partition] = (size + (item.size or 0), count + 1)
        return found


class ManagerTierWatch(TierWatch):
    """Reads the manager's view, the brokers' directories and the bucket."""

    def __init__(self, suite: Stack, topic: str, partitions: int, channel: Channel) -> None:
        super().__init__(suite, topic, partitions)
        self._manager = RemoteLogManagerServiceStub(channel)

    @classmethod
    @asynccontextmanager
    async def open(cls, suite: Stack, topic: str, partitions: int) -> AsyncIterator[Self]:
        """A watch of a topic of the suite."""
        async with connect([suite.address("manager")]) as channel:
            yield cls(suite, topic, partitions, channel)

    async def read(self) -> list[PartitionTiers]:
        """The partitions that the manager knows, by number."""
        states = await self._states()
        stored = await asyncio.to_thread(self.stored)
        tiers = [self._tiers(state, stored) for state in states]
        return sorted(tiers, key=lambda tier: tier.partition)

    async def _states(self) -> list[pb.PartitionState]:
        request = pb.ListPartitionsRequest(topic=self._topic)
        call = call_stream(self._manager.ListPartitions, request, deadline_s=_CALL_S)
        async with aclosing(call) as pages:
            return [state async for page in pages for state in page.partitions]

    def _tiers(
        self, state: pb.PartitionState, stored: dict[int, tuple[int, int]]
    ) -> PartitionTiers:
        partition = state.topic_id_partition.partition
        size, objects = stored.get(partition, (0, 0))
        folder = self._suite.log_dir(state.leader_broker_id) / f"{self._topic}-{partition}"
        return PartitionTiers(
            partition=partition,
            leader=state.leader_broker_id,
            log_start_offset=state.log_start_offset,
            local_log_start_offset=_first_local_offset(folder, state.local_log_start_offset),
            highest_remote_offset=state.highest_remote_offset,
            log_end_offset=state.log_end_offset,
            copy_lag_bytes=state.copy_lag_bytes,
            local_bytes=log_bytes(folder),
            remote_bytes=size,
            remote_objects=objects,
        )


def _first_local_offset(folder: Path, reported: int) -> int:
    """By the files; what the manager last heard may be some seconds old."""
    return max(reported, min((int(file.stem) for file in folder.glob("*.log")), default=0))


def log_bytes(folder: Path) -> int:
    """Size of the segments in a partition's directory."""
    total = 0
    for file in folder.glob("*.log"):
        try:
            total += file.stat().st_size
        except FileNotFoundError:  # dropped by local retention meanwhile
            continue
    return total


def tiers_table(title: str, tiers: list[PartitionTiers]) -> Table:
    """A table of partitions with a total."""
    table = Table(title=title, show_footer=True)
    local, remote = sum(t.local_bytes for t in tiers), sum(t.remote_bytes for t in tiers)
    objects = sum(t.remote_objects for t in tiers)
    for header, footer in (
        ("partition", "total"),
        ("broker", ""),
        ("log start", ""),
        ("local start", ""),
        ("remote up to", ""),
        ("log end", ""),
        ("broker disk", f"{local / _MIB:,.1f} MiB"),
        ("object store", f"{remote / _MIB:,.1f} MiB"),
        ("objects", f"{objects:,}"),
    ):
        table.add_column(header, footer, justify="right")
    for t in tiers:
        offsets = (
            t.log_start_offset,
            t.local_log_start_offset,
            t.highest_remote_offset,
            t.log_end_offset,
        )
        table.add_row(
            str(t.partition),
            str(t.leader),
            *(f"{offset:,}" for offset in offsets),
            f"{t.local_bytes / _MIB:,.1f} MiB",
            f"{t.remote_bytes / _MIB:,.1f} MiB",
            f"{t.remote_objects:,}",
        )
    return table
