"""A log after a power cut at any moment: what was flushed is there, nothing is made up, indexes tell the truth."""

import asyncio
import random
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.partition_log import PartitionLog
from fixtures.broker_logs import NOW_MS, LogWorkshop, client_batch, read_values
from fixtures.power_cut import PowerCut
from hypothesis import given, settings
from hypothesis import strategies as st

_CONFIG = LogConfig(index_interval_bytes=150, segment_bytes=1200, retention_ms=-1)


@dataclass(slots=True)
class _Sent:
    """What was appended, and what has been promised of it."""

    values: dict[int, bytes] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    sequence: int = 0
    durable_end: int = 0
    checkpoint: int = 0
    copyable_end: int = 0


async def _step(log: PartitionLog, sent: _Sent, step: str, number: int) -> None:
    match step:
        case "append":
            await _append(log, sent, number)
        case "roll":
            await log.roll_active()
        case "flush":
            await log.flush()
        case "flush rolled":
            await log.flush_rolled()
        case "checkpoint":
            sent.checkpoint = log.checkpointed_recovery_point
        case "epoch":
            await log.assign_epoch_start((log.latest_epoch or 0) + 1, log.log_end_offset)
    sent.durable_end = max(sent.durable_end, log.recovery_point)
    copyable = log.copyable_segments()
    if copyable:
        sent.copyable_end = copyable[-1].end_offset + 1


async def _append(log: PartitionLog, sent: _Sent, number: int) -> None:
    value, time_ms = b"%d" % number, NOW_MS + (number * 7919) % 1000
    count = 1 + number % 4
    batch = client_batch(
        count, value=value, timestamp_ms=time_ms, producer_id=7, epoch=0, sequence=sent.sequence
    )
    info = await log.append(batch, leader_epoch=log.latest_epoch or 0)
    sent.sequence += count
    for offset in range(info.first_offset, info.last_offset + 1):
        sent.values[offset], sent.times[offset] = value, time_ms


async def _check(log: PartitionLog, sent: _Sent) -> None:
    assert log.log_end_offset >= max(sent.durable_end, sent.copyable_end)
    values = dict(await read_values(log))
    assert {offset for offset in sent.values if offset < sent.durable_end} <= values.keys()
    assert all(sent.values[offset] == value for offset, value in values.items())
    for segment in log.rolled_segments():
        times = [
            sent.times[offset]
            for offset in values
            if segment.base_offset <= offset <= segment.end_offset
        ]
        assert not times or segment.max_timestamp_ms == max(times)
    for time_ms in {sent.times[offset] for offset in values}:
        found = await log.offset_for_timestamp(time_ms)
        assert found is not None
        assert found.offset == min(each for each in values if sent.times[each] >= time_ms)
    for epoch, start in log.leader_epochs.as_map().items():
        assert epoch >= 0
        assert start <= log.log_end_offset
    if values.keys() == sent.values.keys():
        following = client_batch(1, producer_id=7, epoch=0, sequence=sent.sequence)
        assert not (await log.append(following, leader_epoch=99)).duplicate


async def _cut(root: Path, steps: list[str], seed: int | None, *, clean: bool) -> None:
    sent, checkpoint = _Sent(), 0
    with PowerCut() as power:
        workshop = LogWorkshop(root)
        log = await workshop.open(_CONFIG)
        for number, step in enumerate(steps):
            await _step(log, sent, step, number)
        checkpoint = sent.checkpoint
        if clean:
            await log.close()
            checkpoint, sent.durable_end = log.checkpointed_recovery_point, log.log_end_offset
        choice = None if seed is None else random.Random(seed)
        power.leave(log.directory, root / "events-1", choice)
        await workshop.close()
    workshop = LogWorkshop(root)
    again = await workshop.open(_CONFIG, name="events-1", clean=clean, recovery_point=checkpoint)
    await _check(again, sent)
    await workshop.close()


_STEPS = st.lists(
    st.sampled_from(
        ["append"] * 8 + ["roll", "roll", "flush", "flush rolled", "checkpoint", "epoch"]
    ),
    max_size=40,
)


@settings(max_examples=60)
@given(steps=_STEPS, seed=st.none() | st.integers(0, 2**31), clean=st.booleans())
def test_a_log_after_a_power_cut_has_what_was_flushed_and_finds_it_by_time(
    steps: list[str], seed: int | None, clean: bool
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_cut(Path(directory), steps, seed, clean=clean))
