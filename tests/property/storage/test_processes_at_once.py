"""Several processes over one bucket: they copy, read, rewrap, delete and sweep, are killed, and the bucket answers late, twice or not at all."""

import asyncio
import random
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import builders
import pytest
from aquifer_core.errors import AquiferError, UnavailableError
from aquifer_core.ids import KafkaUuid, RemoteLogSegmentId, TopicIdPartition
from aquifer_core.segment import IndexType
from aquifer_storage.domain.envelope import WrappedKey
from aquifer_storage.domain.leftover_sweeper import LeftoverSweeper
from aquifer_storage.domain.object_key import ObjectKeys
from aquifer_storage.domain.options import StorageOptions
from aquifer_storage.domain.remote_storage import RemoteStorage
from contract.remote_storage_manager import joined
from fixtures.hooked_object_store import COPY_OPTIONS
from fixtures.simulated_bucket import BucketAccess, SimulatedBucket
from fixtures.virtual_loop import run_virtually


def segment(number: int, size_bytes: int) -> builders.BuiltSegment:
    """A segment with the same id in every run: sweeps go by the order of keys."""
    built = builders.segment(size_bytes=size_bytes)
    segment_id = RemoteLogSegmentId(
        TopicIdPartition(KafkaUuid(bytes(15) + b"t"), "orders", 0), KafkaUuid(bytes([number] * 16))
    )
    return replace(built, metadata=replace(built.metadata, segment_id=segment_id))


SEGMENTS = [segment(1, 3_000), segment(2, 30_000)]
OPTIONS = replace(
    COPY_OPTIONS, manifest_bundle_max_bytes=500, copy_timeout_s=60, cleanup_timeout_s=30
)
OTHERWISE = {
    "compressing": replace(OPTIONS, codec="zstd"),
    "in larger chunks": replace(OPTIONS, chunk_size_bytes=2 * OPTIONS.chunk_size_bytes),
}
"""Replicas while a setting is changed."""
SWEEP_AFTER_S = 2 * OPTIONS.copy_timeout_s
FAULT_RATES = (0.0, 0.05, 0.2)
PACES = (0.05, 0.3, 1.0)
PROCESSES = 3
LIVES = 40


@dataclass(slots=True)
class Ring:
    """Keys in memory."""

    active: int = 1

    async def active_key_id(self) -> str:
        return str(self.active)

    async def wrap(self, data_key: bytes) -> WrappedKey:
        return WrappedKey(key_id=str(self.active), algorithm="reversed", data=data_key[::-1])

    async def unwrap(self, wrapped: WrappedKey) -> bytes:
        return wrapped.data[::-1]

    async def check(self) -> None:
        return None

    async def close(self) -> None:
        return None


class Process:
    """One that may be killed."""

    def __init__(
        self, bucket: SimulatedBucket, fault_rate: float, ring: Ring | None, options: StorageOptions
    ) -> None:
        self.access = BucketAccess(bucket, fault_rate)
        self.storage = RemoteStorage(
            self.access, options=options, writer_version="1", key_ring=ring
        )
        self.sweeper = LeftoverSweeper(
            self.access, bucket, ObjectKeys(), older_than_s=SWEEP_AFTER_S
        )


class World:
    """Processes over a bucket, and how fast things follow each other."""

    def __init__(self, seed: int, kind: str) -> None:
        self.chance = chance = random.Random(seed)
        self.bucket = SimulatedBucket(chance)
        self.ring = Ring() if kind == "sealed" else None
        self._pace = chance.choice(PACES)
        self._fault_rate = fault_rate = chance.choice(FAULT_RATES)
        self._is_somebody_killed = False
        others = OTHERWISE.get(kind, OPTIONS)
        self.processes = [
            Process(self.bucket, fault_rate, self.ring, others if number % 2 else OPTIONS)
            for number in range(PROCESSES)
        ]

    @property
    def is_calm(self) -> bool:
        """Whether every clean-up could be finished."""
        return not self._fault_rate and not self._is_somebody_killed

    def one(self) -> Process:
        """One that is not killed."""
        return self.chance.choice([each for each in self.processes if not each.access.is_killed])

    async def some_time(self, most_s: float) -> None:
        await asyncio.sleep(self._pace * self.chance.uniform(0, most_s))

    async def perhaps_given_up(self, work: Coroutine[Any, Any, object]) -> None:
        patience_s = self.chance.choice([None, None, self.chance.uniform(0, 40)])
        with suppress(AquiferError, TimeoutError):
            async with asyncio.timeout(patience_s):
                await work

    async def sweep(self) -> None:
        await self.some_time(800)
        await self.perhaps_given_up(self.one().sweeper.sweep())

    async def kill(self) -> None:
        await self.some_time(200)
        self._is_somebody_killed = self.chance.randrange(2) == 0
        self.one().access.is_killed = self._is_somebody_killed

    async def live(self, segments: "list[Segment]") -> None:
        async with asyncio.TaskGroup() as group:
            for segment in segments:
                group.create_task(segment.live())
            for _ in range(3):
                group.create_task(self.sweep())
            group.create_task(self.kill())
        for process in self.processes:
            await process.storage.close()
        await asyncio.sleep(1000)  # requests that were given up are carried out
        self.processes = [Process(self.bucket, 0.0, self.ring, OPTIONS)]
        for _ in range(3):
            await self.one().sweeper.sweep()
            await asyncio.sleep(1000)


class Segment:
    """A segment and what becomes of it; no copy of it begins any more when its deletion has begun."""

    def __init__(self, world: World, built: builders.BuiltSegment) -> None:
        self._world = world
        self._built = built
        self._metadata = built.metadata
        self._copies = 0
        self.is_acknowledged = False
        self.is_doomed = False
        self.is_given_up = False
        """A copy may have outlived its deletion."""

    @property
    def is_calm(self) -> bool:
        """Whether every clean-up could be finished."""
        return self._world.is_calm

    async def live(self) -> None:
        world = self._world
        async with asyncio.TaskGroup() as group:
            copies = [group.create_task(self._copy()) for _ in range(world.chance.randint(1, 3))]
            group.create_task(self._rewrap(within_s=200))
            group.create_task(self._read_on())
            await self._delete_when_done_with(copies)

    @property
    def left(self) -> set[str]:
        """What the bucket has of it, as suffixes of keys."""
        return self._suffixes(self._world.bucket.objects)

    @property
    def late(self) -> set[str]:
        """What came or went of it by requests that had been given up."""
        return self._suffixes(self._world.bucket.changed_late)

    def _suffixes(self, keys: Iterable[str]) -> set[str]:
        name = str(self._metadata.segment_id.id)
        return {key.rpartition(".")[2] for key in keys if name in key}

    async def _copy(self) -> None:
        await self._world.some_time(60)
        if self.is_doomed:
            return
        process = self._world.one()
        self._copies += 1
        await self._world.perhaps_given_up(self._copy_by(process))
        self._copies -= 1

    async def _copy_by(self, process: Process) -> None:
        await process.storage.copy_log_segment_data(self._metadata, self._built.data)
        if not process.access.is_killed and not self.is_doomed:
            self.is_acknowledged = True

    async def _rewrap(self, within_s: float) -> None:
        world = self._world
        await world.some_time(within_s)
        if world.ring is not None:
            world.ring.active += world.chance.randrange(2)
            await world.perhaps_given_up(world.one().storage.rewrap_segment(self._metadata))

    async def _read_on(self) -> None:
        for _ in range(40):
            await self._world.some_time(60)
            if self.is_acknowledged and not self.is_doomed:
                with suppress(UnavailableError):
                    await self.read()

    async def read(self) -> None:
        """Read it in one way or the other; what is wrong with it counts unless its deletion begins meanwhile."""
        storage = self._world.one().storage
        try:
            match self._world.chance.randrange(4):
                case 0:
                    found = await joined(storage.fetch_log_segment(self._metadata, 0))
                    assert found == self._built.log
                case 1:
                    index = await storage.fetch_index(self._metadata, IndexType.OFFSET)
                    assert index == self._built.data.offset_index
                case 2:
                    await storage.describe_segment(self._metadata)
                case _:
                    async for step in storage.verify_segment(self._metadata):
                        assert not step.findings or self.is_doomed
        except UnavailableError:
            raise
        except AquiferError:
            assert self.is_doomed

    async def _delete_when_done_with(self, copies: list[asyncio.Task[None]]) -> None:
        """As callers do: when copies have failed or answer no more, or some time after one was acknowledged."""
        world = self._world
        patience_s = world.chance.choice([None, world.chance.uniform(0, 20)])
        await asyncio.wait(copies, timeout=patience_s)
        await world.some_time(600 if self.is_acknowledged else 0)
        if self.is_acknowledged and world.chance.randrange(3) == 0:
            return
        self.is_doomed = True
        async with asyncio.TaskGroup() as group:
            group.create_task(self._rewrap(within_s=10))
            await self._delete()

    async def _delete(self) -> None:
        while True:
            self.is_given_up = self._copies > 0
            if await self._is_deleted():
                return
            await self._world.some_time(10)

    async def _is_deleted(self) -> bool:
        process = self._world.one()
        with suppress(UnavailableError):
            await process.storage.delete_log_segment_data(self._metadata)
            return not process.access.is_killed
        return False


async def lived(seed: int, kind: str) -> list[Segment]:
    world = World(seed, kind)
    segments = [Segment(world, built) for built in SEGMENTS]
    await world.live(segments)
    for segment in segments:
        for _ in range(0 if segment.is_doomed else 8):
            if segment.is_acknowledged:
                await segment.read()
    await world.one().storage.close()
    return segments


@pytest.mark.parametrize("kind", ["plain", "sealed", *OTHERWISE])
def test_what_was_acknowledged_stays_until_it_is_deleted_and_nothing_stays_for_ever(
    kind: str,
) -> None:
    """SR-16. For a scrub may stay: a manifest that the bucket wrote when everybody had given up, and a copy that outlived its deletion."""
    kept = gone = 0
    for seed in range(LIVES):
        for segment in run_virtually(lived(seed, kind)):
            if not segment.is_doomed:
                assert segment.left >= {"log", "manifest"}, seed
                kept += 1
            elif not segment.is_given_up and "manifest" not in segment.late:
                assert not segment.left, seed
                gone += 1
            elif segment.is_calm:
                assert ("log" in segment.left) == ("manifest" in segment.left), seed
    assert kept > LIVES // 10
    assert gone > LIVES // 2
