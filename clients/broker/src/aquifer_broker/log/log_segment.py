"""One segment of a log: the `.log` file with its offset, time and transaction index (K-6.1, K-6.3)."""

import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from aquifer_core.errors import CorruptIndexError, CorruptRecordError
from aquifer_core.formats import offset_index, time_index
from aquifer_core.formats.checksum import Buffer
from aquifer_core.formats.offset_index import OFFSET_INDEX_ENTRY_BYTES, OffsetIndex
from aquifer_core.formats.segment_files import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from aquifer_core.formats.time_index import TIME_INDEX_ENTRY_BYTES, TimeIndex

from aquifer_broker.log.atomic_file import fsync_path
from aquifer_broker.log.batch_scan import BatchPlace, find_batch, next_batch
from aquifer_broker.log.index_file import IndexFile
from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_file import LogFile
from aquifer_broker.log.log_values import AppendedBatch
from aquifer_broker.log.transaction_index_file import TransactionIndexFile

__all__ = ["LogSegment"]

_MAX_RELATIVE_OFFSET: Final = 2**31 - 1
_MAX_SEGMENT_BYTES: Final = 2**31 - 1


class LogSegment:
    """A segment; only the last one of a log grows.

    Attributes:
        base_offset: First offset, inclusive; names the files.
        max_timestamp_ms: Largest timestamp; -1 when no record has one.
        offset_of_max_timestamp: Last offset of the batch that holds it.
        first_timestamp_ms: Largest timestamp of the first batch, which rolling by time refers to; None when empty.
        created_ms: When the segment was made or loaded.
    """

    __slots__ = (
        "_bytes_since_index_entry",
        "_index_interval_bytes",
        "_max_index_bytes",
        "_roll_jitter_ms",
        "base_offset",
        "created_ms",
        "first_timestamp_ms",
        "log_file",
        "max_timestamp_ms",
        "offset_index_file",
        "offset_of_max_timestamp",
        "time_index_file",
        "transaction_index",
    )

    def __init__(
        self, directory: Path, base_offset: int, config: LogConfig, *, now_ms: int, create: bool
    ) -> None:
        """Refers to the files of a segment, made empty with `create`.

        Raises:
            OSError: A file is missing or cannot be made.
        """

        def path(suffix: str) -> Path:
            return directory / segment_file_name(base_offset, suffix)

        if create:
            path(TRANSACTION_INDEX_SUFFIX).unlink(missing_ok=True)
        self.base_offset = base_offset
        # First what keeps no file open, so that a failure leaves none.
        self.offset_index_file = IndexFile(
            path(OFFSET_INDEX_SUFFIX), OFFSET_INDEX_ENTRY_BYTES, create=create
        )
        self.time_index_file = IndexFile(
            path(TIME_INDEX_SUFFIX), TIME_INDEX_ENTRY_BYTES, create=create
        )
        self.log_file = LogFile(path(LOG_SUFFIX), create=create)
        self.transaction_index = TransactionIndexFile(path(TRANSACTION_INDEX_SUFFIX))
        self.max_timestamp_ms = -1
        self.offset_of_max_timestamp = base_offset
        self.first_timestamp_ms: int | None = None
        self.created_ms = now_ms
        self._bytes_since_index_entry = 0
        self._roll_jitter_ms = random.randint(0, min(config.segment_jitter_ms, config.segment_ms))
        self.update_config(config)

    @property
    def size_bytes(self) -> int:
        """Bytes of the `.log` file."""
        return self.log_file.size_bytes

    @property
    def largest_timestamp_ms(self) -> int:
        """Largest record timestamp; the file's modification time when no record has one."""
        if self.max_timestamp_ms >= 0:
            return self.max_timestamp_ms
        return os.stat(self.log_file.path).st_mtime_ns // 1_000_000

    @property
    def offset_index(self) -> OffsetIndex:
        """Reader over the offset index as it is now."""
        return OffsetIndex(self.offset_index_file.data, self.base_offset)

    @property
    def time_index(self) -> TimeIndex:
        """Reader over the time index as it is now."""
        return TimeIndex(self.time_index_file.data, self.base_offset)

    def update_config(self, config: LogConfig) -> None:
        """Takes over index settings."""
        self._index_interval_bytes = config.index_interval_bytes
        self._max_index_bytes = config.segment_index_bytes

    def must_roll(
        self,
        config: LogConfig,
        *,
        added_bytes: int,
        max_timestamp_ms: int,
        last_offset: int,
        now_ms: int,
    ) -> bool:
        """Whether an append has to go into a new segment (`LogSegment.shouldRoll`)."""
        size = self.size_bytes
        if not size:
            return not self._fits(last_offset)
        return (
            size > min(config.segment_bytes, _MAX_SEGMENT_BYTES) - added_bytes
            or self._time_waited_ms(max_timestamp_ms, now_ms)
            > config.segment_ms - self._roll_jitter_ms
            or self._index_is_full()
            or not self._fits(last_offset)
        )

    def append(
        self, pieces: Sequence[Buffer], batches: Sequence[AppendedBatch], size_bytes: int
    ) -> None:
        """Writes batches and indexes them by Kafka's rule (K-6.3).

        Raises:
            OSError: Nothing was appended.
        """
        position = self.log_file.append(pieces, size_bytes)
        for batch in batches:
            self.index_batch(batch, position)
            position += batch.size_bytes

    def index_batch(self, batch: AppendedBatch, position: int) -> None:
        """Counts a batch of the file at a position and adds index entries when due."""
        if self.first_timestamp_ms is None and batch.max_timestamp_ms >= 0:
            self.first_timestamp_ms = batch.max_timestamp_ms
        if batch.max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = batch.max_timestamp_ms
            self.offset_of_max_timestamp = batch.last_offset
        if self._bytes_since_index_entry > self._index_interval_bytes:
            self.offset_index_file.append(
                offset_index.encode_entry(batch.last_offset - self.base_offset, position)
            )
            self._append_time_entry()
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += batch.size_bytes

    def prepare_end(self) -> bool:
        """Completes the index files, as if nothing else came; answers whether that changed one. It may grow on all the same."""
        self._append_time_entry()
        changed = self.offset_index_file.save()
        return self.time_index_file.save() or changed

    def finish(self) -> bool:
        """Ends growing: the last time index entry, index files complete; answers whether that changed a file."""
        changed = self.prepare_end()
        self.offset_index_file.finish()
        self.time_index_file.finish()
        return changed

    def start_growing(self) -> None:
        """Makes the segment the active one.

        Raises:
            CorruptRecordError: The file does not start with a batch.
        """
        first = next_batch(self.log_file, 0)
        if first is not None and first.max_timestamp_ms >= 0:
            self.first_timestamp_ms = first.max_timestamp_ms
        self.offset_index_file.start_growing()
        self.time_index_file.start_growing()

    def find(self, offset: int) -> BatchPlace | None:
        """The first batch whose last offset is at or after an offset; None: behind the last batch."""
        return find_batch(self.log_file, self.offset_index.lookup(offset).position, offset)

    def read_upper_bound(self, position: int, size: int, segment_end_offset: int) -> int:
        """Offset, exclusive, that a read of bytes cannot reach past (for aborted transactions, K-3.8)."""
        found = self.offset_index.fetch_upper_bound_offset(position, size)
        return segment_end_offset if found is None else found

    def load_state(self) -> None:
        """Fills in what is not stored, from the indexes.

        Raises:
            CorruptIndexError: An index is missing or not what Kafka would accept; recovery rebuilds it.
        """
        if not (self.offset_index_file.path.exists() and self.time_index_file.path.exists()):
            raise CorruptIndexError(f"an index of segment {self.base_offset} is missing")
        offsets, times = self.offset_index, self.time_index
        offsets.sanity_check()
        times.sanity_check()
        self.transaction_index.sanity_check(self.base_offset)
        if offsets.last_entry.position > self.size_bytes:
            raise CorruptIndexError(f"the index of segment {self.base_offset} points past its log")
        self.max_timestamp_ms, self.offset_of_max_timestamp = times.last_entry
        self._bytes_since_index_entry = self.size_bytes - offsets.last_entry.position

    def next_offset(self) -> int:
        """Offset after the last batch; the base offset when the segment is empty.

        Raises:
            CorruptRecordError: The file does not end with a batch.
        """
        last = self.base_offset - 1
        position = self.offset_index.last_entry.position
        while (place := next_batch(self.log_file, position)) is not None:
            last, position = place.last_offset, place.end_position
        if position < self.size_bytes:
            raise CorruptRecordError(f"{self.log_file.path.name}: no whole batch at {position}")
        return last + 1

    def truncate(self, offset: int) -> int:
        """Drops batches from the one that holds an offset on; returns the bytes dropped."""
        place = self.find(offset)
        dropped = 0 if place is None else self.size_bytes - place.position
        self.offset_index_file.truncate(self.offset_index.truncated_size_bytes(offset))
        self.time_index_file.truncate(self.time_index.truncated_size_bytes(offset))
        self.transaction_index.truncate(offset)
        if place is not None:
            self.log_file.truncate(place.position)
        self.max_timestamp_ms, self.offset_of_max_timestamp = self.time_index.last_entry
        self._bytes_since_index_entry = self.size_bytes - self.offset_index.last_entry.position
        if not self.size_bytes:
            self.first_timestamp_ms = None
            self._bytes_since_index_entry = 0
        self._rescan_timestamps()
        return dropped

    def reset_indexes(self) -> None:
        """Empties everything that recovery rebuilds from the `.log` file."""
        for file in (self.offset_index_file, self.time_index_file):
            file.close()
            file.path.write_bytes(b"")
            file.start_growing()
        self.transaction_index.reset()
        self.max_timestamp_ms, self.offset_of_max_timestamp = -1, self.base_offset
        self.first_timestamp_ms = None
        self._bytes_since_index_entry = 0

    def files(self) -> list[Path]:
        """Every file that may exist."""
        return [
            self.log_file.path,
            self.offset_index_file.path,
            self.time_index_file.path,
            self.transaction_index.path,
        ]

    def save_indexes(self) -> None:
        """Writes index entries that are only in memory, without fsync."""
        self.offset_index_file.save()
        self.time_index_file.save()

    def fsync_indexes(self) -> None:
        """Makes the index files durable. Blocks."""
        for path in self.files()[1:]:
            fsync_path(path)

    def mark_deleted(self) -> list[Path]:
        """Renames the files to `.deleted`; open readers go on. Returns the new paths."""
        self.save_indexes()
        moved = []
        for owner in (
            self.log_file,
            self.offset_index_file,
            self.time_index_file,
            self.transaction_index,
        ):
            new = owner.path.with_name(owner.path.name + DELETED_SUFFIX)
            if owner.path.exists():
                owner.path.rename(new)
                moved.append(new)
            owner.path = new
        return moved

    def close(self) -> None:
        """Saves the indexes and releases descriptors; all of it may be used again."""
        self.offset_index_file.close()
        self.time_index_file.close()
        self.log_file.close()

    def release(self) -> None:
        """Releases descriptors without saving anything."""
        self.offset_index_file.release()
        self.time_index_file.release()
        self.log_file.close()

    def _append_time_entry(self) -> None:
        if self.max_timestamp_ms > self.time_index.last_entry.timestamp_ms:
            self.time_index_file.append(
                time_index.encode_entry(
                    self.max_timestamp_ms, self.offset_of_max_timestamp - self.base_offset
                )
            )

    def _rescan_timestamps(self) -> None:
        """Looks at batches behind the last time index entry, whose timestamps no entry tells."""
        position = self.offset_index.lookup(self.offset_of_max_timestamp).position
        while (place := next_batch(self.log_file, position)) is not None:
            if place.max_timestamp_ms > self.max_timestamp_ms:
                self.max_timestamp_ms = place.max_timestamp_ms
                self.offset_of_max_timestamp = place.last_offset
            position = place.end_position

    def _time_waited_ms(self, max_timestamp_ms: int, now_ms: int) -> int:
        if self.first_timestamp_ms is not None and max_timestamp_ms >= 0:
            return max_timestamp_ms - self.first_timestamp_ms
        return now_ms - self.created_ms

    def _index_is_full(self) -> bool:
        offsets = self._max_index_bytes // OFFSET_INDEX_ENTRY_BYTES
        times = self._max_index_bytes // TIME_INDEX_ENTRY_BYTES
        return (
            self.offset_index_file.entry_count >= offsets
            or self.time_index_file.entry_count >= times - 1
        )

    def _fits(self, last_offset: int) -> bool:
        return 0 <= last_offset - self.base_offset <= _MAX_RELATIVE_OFFSET
