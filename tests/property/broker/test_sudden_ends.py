"""kill -9 before any file operation of a log's life: what was confirmed is there afterwards, once, and nothing else."""

import asyncio
import random
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_manager import LogManager
from aquifer_broker.log.partition_log import PartitionLog
from aquifer_core.ids import TopicIdPartition
from fixtures.broker_logs import TOPIC_ID, ManualClock, client_batch, read_values
from fixtures.sudden_end import Ended, SuddenEnd
from hypothesis import given, settings
from hypothesis import strategies as st

_TIP = TopicIdPartition(TOPIC_ID, "events", 0)
_CONFIG = LogConfig(
    segment_bytes=500, index_interval_bytes=100, file_delete_delay_ms=0, retention_ms=-1
)
_STEPS = ["append"] * 8 + ["roll", "flush", "delete records", "retention", "copy", "checkpoint"] * 2


@dataclass(slots=True)
class _Known:
    """What a partition's clients know of it."""

    dirs: tuple[Path, Path]
    config: LogConfig
    values: dict[int, bytes] = field(default_factory=dict)
    underway: dict[int, bytes] = field(default_factory=dict)
    may_be_gone: int = 0
    copied_end: int = 0


async def _step(
    manager: LogManager, log: PartitionLog, known: _Known, choice: random.Random
) -> None:
    match choice.choice([*_STEPS, "move", "move"]):
        case "append":
            await _append(log, known)
        case "roll":
            await log.roll_active()
        case "flush":
            await log.flush_rolled()
        case "delete records":
            start = choice.randint(log.log_start_offset, log.log_end_offset)
            known.may_be_gone = max(known.may_be_gone, start)
            await log.increase_log_start_offset(start)
        case "retention":
            await _retain(log, known, choice.randint(0, log.size_bytes))
        case "copy" if known.config.tiered and (copyable := log.copyable_segments()):
            known.copied_end = max(known.copied_end, choice.choice(copyable).end_offset + 1)
            log.update_highest_offset_in_remote_storage(known.copied_end - 1)
        case "checkpoint":
            await manager.write_checkpoints()
        case "move":
            await manager.move_log("events", 0, choice.choice(known.dirs))


async def _append(log: PartitionLog, known: _Known) -> None:
    end = log.log_end_offset
    value = b"%d" % end
    known.underway = dict.fromkeys(range(end, end + 2), value)
    batch = client_batch(2, value=value, producer_id=7, epoch=0, sequence=end)
    assert (await log.append(batch, leader_epoch=0)).first_offset == end
    known.values |= known.underway
    known.underway = {}


async def _retain(log: PartitionLog, known: _Known, size_bytes: int) -> None:
    if not known.config.tiered:
        known.may_be_gone = max(known.may_be_gone, log.log_end_offset)
    log.update_config(
        replace(known.config, retention_bytes=size_bytes, local_retention_bytes=size_bytes)
    )
    await log.apply_local_retention()


async def _check(manager: LogManager, log: PartitionLog, known: _Known) -> None:
    assert all(online for _, _, online in manager.log_dir_states())
    if known.underway and log.log_end_offset > min(known.underway):
        known.values |= known.underway
    known.underway = {}
    assert log.log_end_offset == max(known.values, default=-1) + 1
    start = log.local_log_start_offset
    assert log.log_start_offset <= known.may_be_gone
    assert start <= max(known.may_be_gone, known.copied_end)
    assert dict(await read_values(log)) == {
        offset: value for offset, value in known.values.items() if offset >= start
    }
    if log.may_lack_records:
        assert not known.copied_end
        await log.confirm_records()
    assert [each.last_sequence for each in log.active_producers()] == (
        [max(known.values)] if known.values else []
    )
    for segment in log.rolled_segments():
        if segment.end_offset >= start:
            assert log.leader_epochs.epoch_for_offset(max(start, segment.base_offset)) == 0
        async with log.segment_data(segment.base_offset) as data:
            assert data.producer_snapshot is not None


async def _live(known: _Known, choice: random.Random, steps: int) -> None:
    async with LogManager(known.dirs, broker_id=1, cluster_id="c", clock=ManualClock()) as manager:
        log = await manager.open_log(_TIP, known.config)
        await _check(manager, log, known)
        log.update_highest_offset_in_remote_storage(known.copied_end - 1)
        for _ in range(steps):
            await _step(manager, log, known, choice)


def _killed(error: BaseException | None) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_killed, error.exceptions))
    return isinstance(error, Ended) or (
        error is not None and (_killed(error.__cause__) or _killed(error.__context__))
    )


@settings(max_examples=30)
@given(
    ends=st.lists(st.integers(1, 300), min_size=1, max_size=3),
    seed=st.integers(0, 2**31),
    tiered=st.booleans(),
)
def test_what_was_confirmed_outlives_every_sudden_end(
    ends: list[int], seed: int, tiered: bool
) -> None:
    choice = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        known = _Known((root / "a", root / "b"), replace(_CONFIG, remote_storage_enable=tiered))
        for end in ends:
            with SuddenEnd(root, end) as sudden:
                try:
                    asyncio.run(_live(known, choice, 25))
                except BaseException as error:
                    if not (sudden.came and _killed(error)):
                        raise
        asyncio.run(_live(known, choice, 0))
