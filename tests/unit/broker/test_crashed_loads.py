"""A crash while a log is loaded after a crash, and what a crash leaves of a log start: nothing is hidden or forgotten."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.partition_log import PartitionLog
from fixtures.broker_logs import LogWorkshop, batch_ends, client_batch

_CONFIG = LogConfig(index_interval_bytes=4096, segment_bytes=500, retention_ms=-1)


async def _fill(log: PartitionLog, count: int = 30) -> None:
    for number in range(count):
        await log.append(client_batch(value=b"%d" % number), leader_epoch=number // 20)


async def test_a_crash_while_segments_are_dropped_is_no_reason_to_forget_what_they_may_have_been(
    workshop: LogWorkshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Remote storage may have the segments that recovery takes away; after the crash nothing else tells of them."""
    log = await workshop.open(_CONFIG)
    await _fill(log)
    await log.flush()
    _, second, *_ = sorted(log.directory.glob("*.log"))
    content = bytearray(second.read_bytes())
    content[batch_ends(second)[0] + 62] ^= 0xFF
    second.write_bytes(content)
    steps: list[Path] = []
    unlink = Path.unlink

    def crash(path: Path, missing_ok: bool = False) -> None:
        """Keeps what a crash at this moment would leave."""
        if path.suffix == ".log":
            kept = workshop.root / f"events-{len(steps) + 1}"
            shutil.copytree(path.parent, kept)
            steps.append(kept)
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", crash)
    tiered = replace(_CONFIG, remote_storage_enable=True)
    recovered = await workshop.open(tiered)
    monkeypatch.undo()

    assert recovered.may_lack_records
    assert len(steps) > 1
    for left in steps:
        again = await workshop.open(tiered, name=left.name)
        assert again.may_lack_records


async def test_records_that_come_back_after_a_crash_have_their_leader_epochs(
    workshop: LogWorkshop,
) -> None:
    """The checkpoint of epochs was cut at a log start that was not in its own checkpoint yet: no such segment can be copied."""
    config = replace(_CONFIG, remote_storage_enable=True)
    log = await workshop.open(config)
    await log.confirm_records()
    await _fill(log)
    await log.increase_log_start_offset(25)
    await log.flush()
    assert log.leader_epochs.as_map() == {1: 25}

    again = await workshop.open(config, recovery_point=25)

    assert again.log_start_offset == 0
    assert again.leader_epochs.as_map() == {0: 0, 1: 20}
    for segment in again.copyable_segments():
        assert again.leader_epochs.entries_in_range(segment.base_offset, segment.end_offset + 1)
    await again.flush()
    assert (again.directory / "leader-epoch-checkpoint").read_text().split("\n")[2:4] == [
        "0 0",
        "1 20",
    ]
