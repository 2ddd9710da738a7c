"""The rolling local remote index of one partition (SR-32, SR-33)."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Self

from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats.leader_epoch_checkpoint import format_leader_epochs, parse_leader_epochs
from aquifer_core.formats.remote_log_index import REMOTE_LOG_INDEX_ENTRY_BYTES, RemoteLogIndexEntry
from aquifer_core.formats.segment_files import (
    LEADER_EPOCH_CHECKPOINT_NAME,
    REMOTE_SEGMENTS_SUFFIX,
    parse_base_offset,
)
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.segment import RemoteLogSegmentMetadata

from aquifer_manager.adapters.remote_index.index_file import IndexFile
from aquifer_manager.domain.remote_index import CoveredSegment

__all__ = ["IndexDirectory"]

_MAX_FILE_BYTES: Final = 0x7FFFFFFF


class IndexDirectory:
    """Implements `RemoteIndex`. Every method blocks, and one at a time may run.

    Files are rolled at `rotate_bytes`, and where the records of a segment are `rotate_ms` younger than the first of the file, so that
    files built from the store years later are the same. Nothing is flushed: what a power cut damages is found by its CRC and built anew.
    """

    def __init__(self, path: Path, *, rotate_bytes: int, rotate_ms: int) -> None:
        """Prepare an empty index; nothing is written before there is something to write.

        Args:
            path: directory of the partition.
            rotate_bytes: most bytes of one remote log index (`remote.log.index.rotate.bytes`).
            rotate_ms: most time between the records of one (`remote.log.index.rotate.ms`).
        """
        self._path = path
        self._rotate_bytes = min(rotate_bytes, _MAX_FILE_BYTES)
        self._rotate_ms = rotate_ms
        self._files: list[IndexFile] = []
        self.lineage: tuple[LeaderEpochEntry, ...] = ()

    @classmethod
    def open(cls, path: Path, *, rotate_bytes: int, rotate_ms: int) -> Self:
        """What an earlier process left.

        Raises:
            CorruptIndexError: it is damaged, and must be deleted.
            OSError: it cannot be read.
        """
        index = cls(path, rotate_bytes=rotate_bytes, rotate_ms=rotate_ms)
        bases = _bases(path)
        last = None
        while last is None and bases:
            base = bases.pop()
            try:
                last = IndexFile.recover(path, base)
            except CorruptIndexError:
                # Nothing of it is left, and nothing behind it: it begins anew.
                IndexFile(path, base).delete()
        if last is not None:
            index._files = [*(IndexFile.load(path, base) for base in bases), last]
            index.lineage = _read_lineage(path)
        return index

    @property
    def start_offset(self) -> int | None:
        """See `RemoteIndex`."""
        start = None
        for file in reversed(self._files):
            if start is not None and file.last_offset + 1 != start:
                break
            start = file.base_offset
        return start

    @property
    def end_offset(self) -> int:
        """Last offset covered, inclusive; -1 when nothing is."""
        return self._files[-1].last_offset if self._files else -1

    def set_lineage(self, lineage: Sequence[LeaderEpochEntry]) -> None:
        """Note the leader epochs that everything from now on belongs to, and what is kept already."""
        self._path.mkdir(parents=True, exist_ok=True)
        checkpoint = self._path / LEADER_EPOCH_CHECKPOINT_NAME
        partial = checkpoint.with_name(f"{checkpoint.name}.tmp")
        partial.write_bytes(format_leader_epochs(lineage))
        partial.replace(checkpoint)
        self.lineage = tuple(lineage)

    def append(
        self,
        metadata: RemoteLogSegmentMetadata,
        entries: Sequence[RemoteLogIndexEntry],
        first_offset: int,
        last_offset: int,
    ) -> None:
        """Append the next segment.

        Args:
            metadata: of the segment.
            entries: its chunks, in order.
            first_offset: above what is covered; the segment is the partition's from here on.
            last_offset: up to here, inclusive.

        Raises:
            OSError: it could not be written; open the directory again.
        """
        chunks = [
            entry
            for entry in entries
            if entry.last_offset >= first_offset and entry.first_offset <= last_offset
        ]
        file = self._files[-1] if self._files else None
        if (
            file is None
            or file.last_offset + 1 != first_offset
            or not file.takes(chunks, last_offset)
            or file.size_bytes + len(chunks) * REMOTE_LOG_INDEX_ENTRY_BYTES > self._rotate_bytes
            or self._is_of_another_time(file, chunks[0].first_timestamp_ms if chunks else -1)
        ):
            self._path.mkdir(parents=True, exist_ok=True)
            file = IndexFile(self._path, first_offset)
            file.delete()
            file.append(metadata, chunks, last_offset=last_offset)
            self._files.append(file)
        else:
            file.append(metadata, chunks, last_offset=last_offset)

    def cut(self, offset: int) -> None:
        """Forget segments that reach an offset, because the log has other records there.

        Raises:
            CorruptIndexError: what stays is damaged.
            OSError: it could not be written; open the directory again.
        """
        while self._files and self._files[-1].base_offset >= offset:
            self._files.pop().delete()
        if self._files and self._files[-1].last_offset >= offset:
            base_offset = self._files.pop().base_offset
            try:
                self._files.append(IndexFile.recover(self._path, base_offset, below=offset))
            except CorruptIndexError:
                # No segment of it stays.
                IndexFile(self._path, base_offset).delete()

    def clean(self, log_start_offset: int) -> None:
        """Delete files that cover nothing at or above the log start; a file partly below it stays."""
        while self._files and self._files[0].last_offset < log_start_offset:
            self._files.pop(0).delete()

    def find_by_offset(self, offset: int) -> CoveredSegment | None:
        """See `RemoteIndex`."""
        number = bisect_right(self._files, offset, key=lambda file: file.base_offset) - 1
        return self._files[number].find_by_offset(offset) if number >= 0 else None

    def segments_from(self, offset: int) -> Iterator[CoveredSegment]:
        """See `RemoteIndex`."""
        number = bisect_right(self._files, offset, key=lambda file: file.base_offset) - 1
        for file in self._files[number:] if number >= 0 else ():
            yield from file.segments_from(max(offset, file.base_offset))

    @property
    def last_transactional_offset(self) -> int:
        """See `RemoteIndex`."""
        return max((file.last_transactional_offset for file in self._files), default=-1)

    def find_by_timestamp(self, timestamp_ms: int, min_offset: int) -> CoveredSegment | None:
        """See `RemoteIndex`."""
        for file in self._files:
            if file.last_offset >= min_offset and file.max_timestamp_ms >= timestamp_ms:
                found = file.find_by_timestamp(timestamp_ms, min_offset)
                if found is not None:
                    return found
        return None

    def next_with_transactions(self, offset: int) -> CoveredSegment | None:
        """See `RemoteIndex`."""
        for file in self._files:
            if file.last_transactional_offset >= offset:
                return file.next_with_transactions(offset)
        return None

    def _is_of_another_time(self, file: IndexFile, timestamp_ms: int) -> bool:
        if file.first_timestamp_ms < 0 or timestamp_ms < 0:
            return False
        return timestamp_ms - file.first_timestamp_ms > self._rotate_ms


def _bases(path: Path) -> list[int]:
    if not path.is_dir():
        return []
    names = [entry.name for entry in path.iterdir() if entry.name.endswith(REMOTE_SEGMENTS_SUFFIX)]
    return sorted(base for name in names if (base := parse_base_offset(name)) is not None)


def _read_lineage(path: Path) -> tuple[LeaderEpochEntry, ...]:
    try:
        return parse_leader_epochs((path / LEADER_EPOCH_CHECKPOINT_NAME).read_bytes())
    except FileNotFoundError as error:
        raise CorruptIndexError(f"{LEADER_EPOCH_CHECKPOINT_NAME} is missing") from error
