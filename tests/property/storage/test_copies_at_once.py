"""Several copies of one segment id at once, in processes that fail: what one has acknowledged stays whatever the others do."""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, replace

import builders
import pytest
from aquifer_core.errors import AquiferError
from aquifer_storage.domain.options import StorageOptions
from aquifer_storage.domain.remote_storage import RemoteStorage
from contract.remote_storage_manager import joined
from fixtures.hooked_object_store import COPY_OPTIONS
from fixtures.scheduled_store import ProcessStore, ScheduledStore

SMALL, LARGE = builders.segment(size_bytes=3_000), builders.segment(size_bytes=30_000)
PROCESSES = 4
SCHEDULES = 40
FAILURE_RATES = (0.0, 0.05, 0.2)
COMPRESSING = replace(COPY_OPTIONS, codec="zstd")


@dataclass(slots=True)
class Process:
    """One that copies the segment once or twice."""

    storage: RemoteStorage
    is_acknowledged: bool = False

    async def copy(self, segment: builders.BuiltSegment) -> None:
        for _ in range(2):
            with suppress(AquiferError):
                await self.storage.copy_log_segment_data(segment.metadata, segment.data)
                self.is_acknowledged = True
        await self.storage.writer.close()


@pytest.mark.parametrize(
    "kinds", [[COPY_OPTIONS], [COPY_OPTIONS, COMPRESSING]], ids=["alike", "mixed"]
)
@pytest.mark.parametrize("segment", [SMALL, LARGE], ids=["small", "large"])
async def test_a_copy_that_was_acknowledged_stays_whatever_other_copies_of_it_do(
    segment: builders.BuiltSegment, kinds: list[StorageOptions]
) -> None:
    """Clean-ups of copies that failed take only what no copy can be acknowledged with any more."""
    acknowledged = 0
    for seed in range(SCHEDULES):
        chance = random.Random(seed)
        store = ScheduledStore(chance)
        processes = [
            Process(
                RemoteStorage(
                    ProcessStore(store, chance.choice(FAILURE_RATES)),
                    options=kinds[number % len(kinds)],
                    writer_version="1",
                )
            )
            for number in range(PROCESSES)
        ]
        async with asyncio.TaskGroup() as group:
            await store.run(*[group.create_task(each.copy(segment)) for each in processes])
        if any(each.is_acknowledged for each in processes):
            acknowledged += 1
            left = ScheduledStore(chance)
            left.objects = store.objects
            reader = RemoteStorage(
                ProcessStore(left, 0.0), options=COPY_OPTIONS, writer_version="1"
            )
            async with asyncio.TaskGroup() as group:
                read = group.create_task(joined(reader.fetch_log_segment(segment.metadata, 0)))
                await left.run(read)
            assert read.result() == segment.log, seed
            await reader.close()
        for each in processes:
            await each.storage.close()
    assert acknowledged > SCHEDULES // 10
