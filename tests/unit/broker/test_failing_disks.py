"""A disk that fails while somebody gives up waiting for it has failed all the same."""

import asyncio
import errno

import pytest
from aquifer_broker.log.log_errors import LogStorageError
from aquifer_broker.log.partition_log import PartitionLog
from aquifer_core.errors import NotLeaderError
from fixtures.broker_logs import LogWorkshop, client_batch
from fixtures.held_disk import HeldCall


async def flushing(
    workshop: LogWorkshop, monkeypatch: pytest.MonkeyPatch, failure: OSError
) -> tuple[PartitionLog, HeldCall, "asyncio.Task[None]"]:
    """A log with a record whose flush has begun and will fail once it is let go."""
    log = await workshop.open()
    await log.append(client_batch(), leader_epoch=0)
    held = HeldCall(monkeypatch, "fdatasync", lambda path: path.endswith(".log"), error=failure)
    flush = asyncio.create_task(log.flush())
    await held.wait_reached()
    return log, held, flush


async def test_a_failed_flush_that_was_cancelled_takes_the_dir_offline(
    workshop: LogWorkshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel tells of a failed write once: the next flush would succeed, and move the recovery point past what is lost."""
    failure = OSError(errno.EIO, "Input/output error")
    log, held, flush = await flushing(workshop, monkeypatch, failure)

    flush.cancel()
    held.let_go()
    with pytest.raises(asyncio.CancelledError):
        await flush

    assert workshop.guard.error is failure
    with pytest.raises(LogStorageError):
        await log.flush()
    assert log.recovery_point == 0


async def test_a_failure_on_files_of_a_log_that_is_gone_is_nobodys(
    workshop: LogWorkshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = FileNotFoundError(errno.ENOENT, "No such file")
    log, held, flush = await flushing(workshop, monkeypatch, failure)
    retirement = asyncio.create_task(log.retire())
    await asyncio.sleep(0)

    flush.cancel()
    held.let_go()
    with pytest.raises(asyncio.CancelledError):
        await flush
    await retirement

    assert workshop.guard.online
    with pytest.raises(NotLeaderError):
        await log.flush()


async def test_a_flush_without_a_free_file_that_was_cancelled_is_no_failure_of_the_disk(
    workshop: LogWorkshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = OSError(errno.EMFILE, "Too many open files")
    log, held, flush = await flushing(workshop, monkeypatch, failure)

    flush.cancel()
    held.let_go()
    with pytest.raises(asyncio.CancelledError):
        await flush

    assert workshop.guard.online
    await log.flush()
    assert log.recovery_point == 1
