"""One partition's log: what changes it, and how its parts work together."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import structlog
from aquifer_core.errors import OffsetOutOfRangeError
from aquifer_core.formats.checksum import Buffer
from aquifer_core.ids import TopicIdPartition
from aquifer_core.leader_epoch import LeaderEpochEntry

from aquifer_broker.log.disk_work import on_disk
from aquifer_broker.log.epoch_rebuild import add_older_entries
from aquifer_broker.log.log_append import append_records
from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_copy import LogCopy
from aquifer_broker.log.log_dir import LogDir
from aquifer_broker.log.log_flush import flush_log, save_leader_epochs
from aquifer_broker.log.log_installation import install_copy
from aquifer_broker.log.log_loader import LogCheckpoints, load_log
from aquifer_broker.log.log_resources import LogResources
from aquifer_broker.log.log_roll import roll_log
from aquifer_broker.log.log_state import LogState
from aquifer_broker.log.log_truncation import restart_log, truncate_log
from aquifer_broker.log.log_values import AppendInfo, AppendOrigin
from aquifer_broker.log.open_files import needs_free_file
from aquifer_broker.log.producer_snapshots import write_snapshot
from aquifer_broker.log.readable_log import ReadableLog
from aquifer_broker.log.remote_check import remove_check
from aquifer_broker.log.retention_pass import run_retention_pass

__all__ = ["PartitionLog"]

logger = structlog.get_logger(__name__)


class PartitionLog(ReadableLog):
    """The local log of one partition. Made by `LogManager`; lives in the event loop's thread.

    An append is one vectored write to the page cache in the event loop; whatever may wait for the disk runs in a thread.
    Every method that touches the disk raises `LogStorageError` when the log dir is offline.
    """

    def __init__(self, state: LogState, resources: LogResources) -> None:
        """Takes over a loaded log; use `open`."""
        super().__init__(state, resources)
        self._resources = resources
        self._replicated = True
        self._flushed_ms = resources.clock.now_ms()
        # Held while the log is truncated or flushed by force; an append waits for it, but never takes it.
        self._restructuring = asyncio.Lock()

    @classmethod
    async def open(
        cls,
        directory: Path,
        topic_id_partition: TopicIdPartition,
        config: LogConfig,
        resources: LogResources,
        checkpoints: LogCheckpoints | None = None,
    ) -> "PartitionLog":
        """Loads the log in a directory, recovers it unless `checkpoints` say that it was closed cleanly, or makes a new one.

        It counts as replicated until `set_replicated` says otherwise.

        Raises:
            NoFreeFileError: It may be loaded again when there is one.
            LogStorageError: The log dir failed.
        """
        with resources.guard, needs_free_file(directory):
            state = await on_disk(
                load_log,
                directory,
                topic_id_partition,
                config,
                checkpoints or LogCheckpoints(),
                resources.clock.now_ms(),
            )
        return cls(state, resources)

    async def append(
        self, records: Buffer, *, leader_epoch: int, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendInfo:
        """Checks and appends record batches. Offsets and leader epoch are set, except with origin REPLICATION.

        Does not wait for the disk unless `flush.messages` says so. `records` is neither modified nor kept. A client's batch that
        is in the log already is not appended again; the answer is the first one's.

        Raises:
            CorruptRecordError: CRC, magic or structure (CORRUPT_MESSAGE).
            StaleLeaderEpochError: `leader_epoch` is below the log's.
            RecordTooLargeError, RecordListTooLargeError, InvalidRecordError, InvalidTimestampError,
            OutOfOrderSequenceError, InvalidProducerEpochError, InvalidTxnStateError,
            TransactionCoordinatorFencedError, OffsetsOutOfOrderError: see `log_errors`; each has `kafka_error_code`.
        """
        self._guard.check()
        while self._restructuring.locked():
            async with self._restructuring:
                pass
        with self._guard:
            info = append_records(self._state, self._resources, records, leader_epoch, origin)
        self._moved()
        state = self._state
        if state.log_end_offset - state.recovery_point >= state.config.flush_messages:
            await self.flush()
        return info

    def set_replicated(self, replicated: bool) -> None:
        """Says whether the high watermark is moved by replication, or is the end offset."""
        self._replicated = replicated
        if not replicated:
            self._moved()

    def set_high_watermark(self, offset: int) -> int:
        """Moves the high watermark, kept between log start and log end; returns the result."""
        state = self._state
        kept = max(state.log_start_offset, min(offset, state.log_end_offset))
        if kept != state.high_watermark:
            state.high_watermark = kept
            state.producers.on_high_watermark(kept)
            self._waiters.wake()
        return kept

    def update_highest_offset_in_remote_storage(self, offset: int) -> None:
        """Records what was copied; never decreases."""
        state = self._state
        state.highest_offset_in_remote_storage = max(state.highest_offset_in_remote_storage, offset)

    async def increase_log_start_offset(self, offset: int, *, reason: str = "") -> bool:
        """Raises the log start (DeleteRecords, retention); a lower value does nothing. Idempotent.

        Local segments wholly below it go with the next retention pass.

        Raises:
            OffsetOutOfRangeError: above the high watermark.
        """
        state = self._state
        if offset > state.high_watermark:
            raise OffsetOutOfRangeError(
                f"log start offset {offset} of {state.topic_id_partition} is above the high watermark {state.high_watermark}"
            )
        if offset <= state.log_start_offset:
            return False
        logger.info(
            "log_start_offset_raised",
            partition=str(state.topic_id_partition),
            before=state.log_start_offset,
            after=offset,
            reason=reason,
        )
        state.log_start_offset = offset
        state.first_local_offset = max(state.first_local_offset, offset)
        state.producers.truncate_start(offset)
        if state.leader_epochs.truncate_from_start(offset):
            state.epochs_saved = False
        self._waiters.wake()
        return True

    async def truncate_to(self, offset: int) -> bool:
        """Drops records at and after `offset` (followers); True when something was dropped."""
        async with self._restructuring:
            with self._guard:
                dropped = await truncate_log(self._state, self._resources, offset)
        self._waiters.wake()
        return dropped

    async def truncate_fully_and_start_at(
        self, offset: int, *, log_start_offset: int | None = None
    ) -> None:
        """Empties the log; the next record gets `offset`. `log_start_offset` may be lower (tiered bootstrap, K-3.11)."""
        async with self._restructuring:
            with self._guard:
                await restart_log(
                    self._state, self._resources, offset, log_start_offset=log_start_offset
                )
        self._waiters.wake()

    async def restart_from_remote(
        self,
        offset: int,
        *,
        log_start_offset: int,
        epochs: Iterable[LeaderEpochEntry],
        producer_snapshot: bytes | None,
    ) -> None:
        """As `truncate_fully_and_start_at`, with leader epochs and producer state from remote storage (K-3.11).

        Raises:
            CorruptIndexError: The snapshot is damaged; nothing was changed.
        """
        async with self._restructuring:
            with self._guard:
                await restart_log(
                    self._state,
                    self._resources,
                    offset,
                    log_start_offset=log_start_offset,
                    epochs=epochs,
                    producer_snapshot=producer_snapshot,
                )
        self._waiters.wake()

    async def confirm_records(self) -> None:
        """The log was compared with remote storage, or restored from it; it may be used. Idempotent."""
        async with self._restructuring:
            with self._guard:
                await on_disk(remove_check, self._state.directory)
            self._state.may_lack_records = False

    async def complete_leader_epochs(self, older: Iterable[LeaderEpochEntry]) -> None:
        """Adds the epochs of the remote part, of the same lineage, durably. Idempotent."""
        state = self._state
        if add_older_entries(state.leader_epochs, older):
            state.leader_epochs.truncate_from_start(state.log_start_offset)
            state.epochs_saved = False
        state.epochs_completed = True
        with self._guard:
            await save_leader_epochs(state)

    async def assign_epoch_start(self, epoch: int, offset: int) -> None:
        """Records the start of a leader epoch, durably. Call on becoming leader with `log_end_offset`. Idempotent."""
        if self._state.leader_epochs.assign(epoch, offset):
            self._state.epochs_saved = False
        with self._guard:
            await save_leader_epochs(self._state)

    def remove_expired_producers(self, expiration_ms: int) -> int:
        """Forgets producers that were silent for longer; returns how many."""
        return self._state.producers.remove_expired(self._resources.clock.now_ms(), expiration_ms)

    async def roll_active(self) -> int:
        """Closes the active segment unless it is empty; returns the active segment's base offset."""
        async with self._restructuring:
            with self._guard:
                if self._state.segments.active.size_bytes:
                    roll_log(self._state, self._resources, self._state.log_end_offset)
            return self.active_base_offset

    async def apply_local_retention(self) -> int:
        """One retention pass (K-3.5); number of segments deleted."""
        async with self._restructuring:
            with self._guard:
                deleted = run_retention_pass(self._state, self._resources)
        if deleted:
            self._waiters.wake()
        return deleted

    async def flush(self) -> None:
        """fsync up to the end offset; moves the recovery point."""
        now_ms = self._resources.clock.now_ms()
        with self._guard:
            await flush_log(self._state, self._state.log_end_offset)
        self._flushed_ms = now_ms

    async def flush_if_due(self) -> None:
        """fsync when the last one was `flush.ms` ago or more."""
        if self._resources.clock.now_ms() - self._flushed_ms >= self.config.flush_ms:
            await self.flush()

    async def flush_rolled(self) -> None:
        """fsync the rolled segments; moves the recovery point to the active segment."""
        with self._guard:
            await flush_log(self._state, self.active_base_offset)

    def update_config(self, config: LogConfig) -> None:
        """Takes effect at once. A topic whose tiering ends keeps only its local part, and has nothing remote any more (K-3.12)."""
        state = self._state
        if state.config.tiered and not config.tiered:
            state.log_start_offset = state.local_log_start_offset
            state.highest_offset_in_remote_storage = -1
        state.config = config
        state.segments.active.update_config(config)

    async def close(self) -> None:
        """Flushes, takes a producer snapshot and releases every descriptor. Nothing may be called afterwards."""
        state = self._state
        try:
            if self._guard.online:
                with self._guard:
                    state.producers.map_end_offset = state.log_end_offset
                    write_snapshot(state.directory, state.producers)
                    if state.segments.active.finish():
                        state.finished.append(state.segments.active)
                    await self.flush()
                state.closed = True
        finally:
            self._guard.retired = True
            self._release()

    def start_copy(self, target: Path) -> LogCopy:
        """Begins to copy the log's files to an empty directory of another log dir."""
        return LogCopy(self._state, self._guard, target, self._resources.log_dir_id)

    async def switch_to(
        self, final: Path, home: LogDir, copy: LogCopy, resources: LogResources
    ) -> None:
        """Finishes a copy while appends wait, and goes on from it. Whoever holds this log does not notice.

        Args:
            final: What the copy's directory is to be called.
            home: The log dir that it lies in; gets the log's checkpoints.
            copy: Made by `start_copy`.
            resources: Of the new log dir.

        Raises:
            LogStorageError: The log could not be read; it stays where it is.
            OSError: The new log dir failed; the log stays where it is.
        """
        async with self._restructuring:
            self._guard.check()
            async with self._state.flushing:
                await copy.finish()
                installed = await install_copy(
                    self, copy, guard=self._guard, final=final, home=home, resources=resources
                )
                left = self._state.segments
                # Who waits meanwhile, for a lock or for a thread, goes on with the new files and the new disk.
                self._state.go_on_in(installed)
                self._guard.move_to(resources.guard)
                self._resources = resources
            for segment in left:
                segment.release()

    async def retire(self) -> None:
        """Ends the log because its directory goes away: waits for work on its files, then refuses everything. Saves nothing."""
        self._guard.retired = True
        async with self._restructuring, self._state.flushing:
            self._release()

    def _release(self) -> None:
        for segment in self._state.segments:
            segment.release()

    def _moved(self) -> None:
        state = self._state
        if not self._replicated and state.high_watermark != state.log_end_offset:
            state.high_watermark = state.log_end_offset
            state.producers.on_high_watermark(state.high_watermark)
        self._waiters.wake()
