"""The end of a move between log dirs: a finished copy gets its name and takes the log's place."""

from pathlib import Path

from aquifer_broker.log.disk_work import on_disk
from aquifer_broker.log.log_copy import LogCopy
from aquifer_broker.log.log_dir import LogDir
from aquifer_broker.log.log_loader import LogCheckpoints, load_log
from aquifer_broker.log.log_resources import LogResources
from aquifer_broker.log.log_state import LogState
from aquifer_broker.log.log_view import LogView
from aquifer_broker.log.move_notes import MOVING_TO_NAME, leave_note, remove_note
from aquifer_broker.log.storage_guard import LogGuard

__all__ = ["install_copy"]


async def install_copy(
    log: LogView,
    copy: LogCopy,
    *,
    guard: LogGuard,
    final: Path,
    home: LogDir,
    resources: LogResources,
) -> LogState:
    """Gives a finished copy its name and loads it; a failure takes the name away again.

    Args:
        log: The log where it was until now; nothing may change in it meanwhile.
        copy: Of the log, finished.
        guard: Of the log dir where it was.
        final: What the copy's directory is to be called.
        home: The log dir that it lies in; gets the log's checkpoints.
        resources: Of that new log dir.

    Raises:
        LogStorageError: The old log dir failed.
        OSError: The new log dir failed.
    """
    checkpoints = LogCheckpoints(
        clean_shutdown=True,
        recovery_point=log.log_end_offset,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
    )
    tip, now_ms = log.topic_id_partition, resources.clock.now_ms()
    with guard:
        await on_disk(leave_note, log.directory, MOVING_TO_NAME, home.id)
    try:
        home.checkpoints.take([log])
        await on_disk(home.install_future, copy.target, final)
        return await on_disk(load_log, final, tip, log.config, checkpoints, now_ms)
    except BaseException:
        home.checkpoints.forget((tip.topic, tip.partition))
        await on_disk(home.withdraw, copy.target, final)
        with guard:
            await on_disk(remove_note, log.directory, MOVING_TO_NAME)
        raise
