"""Committed reads of a whole remote partition, with transactions across segments and leader epochs, holes, and limits of any size.

Every record comes once and in order, every plan has the aborted transactions of what it reads, and one that may be used again has none
to miss (SR-19, SR-23, K-3.8). It makes no difference whether metadata answers, a local remote index, or that alone (SR-33).
"""

import random
from pathlib import Path

import pytest
from aquifer_core.formats.record_batch import iter_batches
from aquifer_core.formats.transaction_index import AbortedTransaction
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.segment import IsolationLevel
from fixtures.manager_fetches import TIP, FailingMetadata, Reads, aborted, request
from fixtures.manager_indexes import NOWHERE
from fixtures.manager_segments import batch

Batch = tuple[int, int, int]


class RandomPartition:
    """Batches as (first offset, last offset, leader epoch), of which some are gone by the time they are remote."""

    def __init__(self, seed: int, index_directory: Path | None = None) -> None:
        self.random = random.Random(seed)
        self.metadata = FailingMetadata()
        self.has_index = index_directory is not None
        self.reads = Reads(metadata=self.metadata, index_directory=index_directory or NOWHERE)
        self.lineage = [LeaderEpochEntry(0, 0)]
        self.aborted: list[AbortedTransaction] = []
        self.kept: list[Batch] = []
        self._batches: list[Batch] = []
        self._open: dict[int, int] = {}
        self.end = 0
        for _ in range(self.random.randrange(20, 80)):
            self._append()

    async def store(self) -> None:
        left = self._batches
        while left:
            count = self.random.randrange(1, 8)
            await self._put(left[:count])
            left = left[count:]
        if self.has_index:
            indexes = self.reads.indexes
            indexes.should_reach(TIP, self.lineage, 0, self.end - 1)
            while indexes.behind:
                await indexes.update()

    def epoch_of(self, offset: int) -> int:
        return max(each.epoch for each in self.lineage if each.start_offset <= offset)

    def aborted_in(self, first: int, last: int) -> set[AbortedTransaction]:
        return {
            each for each in self.aborted if each.last_offset >= first and each.first_offset <= last
        }

    def _append(self) -> None:
        chance = self.random
        if chance.random() < 0.1:
            epoch = self.lineage[-1].epoch + chance.randrange(1, 3)
            if self.end > self.lineage[-1].start_offset:
                self.lineage.append(LeaderEpochEntry(epoch, self.end))
        base, last = self.end, self.end + chance.randrange(3)
        self.end = last + 1
        self._batches.append((base, last, self.lineage[-1].epoch))
        step = chance.random()
        if step < 0.3:
            self._open.setdefault(chance.randrange(6), base)
        elif step < 0.55 and self._open:
            producer = chance.choice(list(self._open))
            first = self._open.pop(producer)
            if chance.random() < 0.7:
                stable = min([*self._open.values(), last + 1])
                self.aborted.append(aborted(first, last, stable, producer=producer))

    async def _put(self, batches: list[Batch]) -> None:
        start, end = batches[0][0], batches[-1][1]
        kept = [each for each in batches if self.random.random() < 0.85 or each is batches[0]]
        self.kept += kept
        epochs: dict[int, int] = {}
        for base, _, epoch in batches:
            epochs.setdefault(epoch, base)
        await self.reads.put(
            *[batch(base, last - base + 1, epoch=epoch) for base, last, epoch in kept],
            epochs=epochs,
            end_offset=end,
            aborted=[each for each in self.aborted if start <= each.last_offset <= end],
        )


async def read_once(partition: RandomPartition, offset: int) -> tuple[list[tuple[int, int]], int]:
    """The batches of a read, and where the next one begins."""
    asked = {
        "leader_epoch": partition.epoch_of(offset),
        "max_bytes": partition.random.choice([1, 80, 200, 1000]),
        "lineage": tuple(partition.lineage),
        "isolation_level": IsolationLevel.READ_COMMITTED,
        "local_log_start_offset": partition.end,
    }
    plan, data = await partition.reads.fetch(offset, **asked)
    batches = [(each.base_offset, each.last_offset) for each in iter_batches(data)]
    if plan.segment is None:
        assert not batches
        assert plan.fetch_offset > offset
        return [], plan.fetch_offset
    first, last = max(offset, batches[0][0]), batches[-1][1]
    assert partition.aborted_in(first, last) <= set(plan.aborted)
    ahead = await partition.reads.service.plan(request(offset, reach_bytes=10_000, **asked), 30.0)
    if ahead.reusable:
        assert not [each for each in partition.aborted if each.last_offset >= offset]
    elif ahead.segment == plan.segment:
        assert partition.aborted_in(first, last) <= set(ahead.aborted)
    return batches, last + 1


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("answers", ["metadata", "both", "index"])
async def test_every_record_comes_once_with_what_was_aborted(
    seed: int, answers: str, tmp_path: Path
) -> None:
    partition = RandomPartition(seed, None if answers == "metadata" else tmp_path)
    await partition.store()
    partition.metadata.away = answers == "index"
    offset, found = 0, []
    while offset < partition.end:
        batches, behind = await read_once(partition, offset)
        assert behind > offset
        found += batches
        offset = behind
    assert found == [(base, last) for base, last, _ in partition.kept]
    assert answers == "metadata" or not partition.metadata.run_lookups
