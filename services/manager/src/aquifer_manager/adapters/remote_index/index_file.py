"""One rolling remote log index of a partition, with its offset and time index and the segments that it covers."""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Self

from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats.entry_index import MAX_RELATIVE
from aquifer_core.formats.offset_index import OffsetIndex
from aquifer_core.formats.remote_log_index import (
    REMOTE_LOG_INDEX_ENTRY_BYTES,
    RemoteLogIndexEntry,
    decode_entries,
    encode_remote_offset_index,
    encode_remote_time_index,
)
from aquifer_core.formats.segment_files import (
    REMOTE_LOG_INDEX_SUFFIX,
    REMOTE_OFFSET_INDEX_SUFFIX,
    REMOTE_SEGMENTS_SUFFIX,
    REMOTE_TIME_INDEX_SUFFIX,
    segment_file_name,
)
from aquifer_core.formats.time_index import TimeIndex
from aquifer_core.segment import RemoteLogSegmentMetadata

from aquifer_manager.adapters.remote_index.index_entries import (
    clipped,
    first_reaching,
    sound_entries,
    sound_records,
)
from aquifer_manager.adapters.remote_index.segment_records import (
    RecordHead,
    decode_record,
    encode_record,
    record_heads,
)
from aquifer_manager.domain.remote_index import CoveredSegment

__all__ = ["IndexFile"]

_NO_TIMESTAMP: Final = -1


class IndexFile:
    """Four files of one base offset, named by the first offset that they cover. Every method blocks.

    Attributes:
        base_offset: first offset covered.
        last_offset: last offset covered, inclusive; below the base offset while there is none.
        size_bytes: of the remote log index.
        first_timestamp_ms: of the first chunk.
        max_timestamp_ms: of all chunks; -1 when unknown.
        last_transactional_offset: where the last segment ends that may have aborted transactions; -1: none may.
    """

    __slots__ = (
        "_directory",
        "_first_offsets",
        "_index_ends",
        "_indexed_offset",
        "_positions",
        "base_offset",
        "first_timestamp_ms",
        "last_offset",
        "last_transactional_offset",
        "max_timestamp_ms",
        "size_bytes",
    )

    def __init__(self, directory: Path, base_offset: int) -> None:
        """Look at nothing yet; see `load` and `recover`."""
        self._directory = directory
        self._first_offsets = array("q")
        self._index_ends = array("q")
        self._positions = array("q", [0])
        self.base_offset = base_offset
        self.last_offset = base_offset - 1
        self.size_bytes = 0
        self.first_timestamp_ms = _NO_TIMESTAMP
        self.max_timestamp_ms = _NO_TIMESTAMP
        self.last_transactional_offset = -1
        self._indexed_offset = base_offset - 1

    @classmethod
    def load(cls, directory: Path, base_offset: int) -> Self:
        """A file that is no longer appended to; its content is checked when it is used.

        Raises:
            CorruptIndexError: something of it is missing or damaged.
        """
        file = cls(directory, base_offset)
        for head in file._all_records(file._read(file._segments)):
            file._note(head)
        first = next(decode_entries(file._read(file._log, 0, REMOTE_LOG_INDEX_ENTRY_BYTES)), None)
        last_time = TimeIndex(file._read(file._times), base_offset).last_entry
        if file._log.stat().st_size < file.size_bytes:
            raise CorruptIndexError(f"{file._log.name}: entries are missing")
        if first is not None:
            file.first_timestamp_ms = first[1].first_timestamp_ms
        file.max_timestamp_ms = last_time.timestamp_ms
        return file

    @classmethod
    def recover(cls, directory: Path, base_offset: int, *, below: int | None = None) -> Self:
        """The file that is appended to, cut behind the last segment that is there as a whole, its companions written anew.

        Args:
            directory: of the partition.
            base_offset: names it.
            below: segments that reach this offset are cut off as well.

        Raises:
            CorruptIndexError: nothing of it is left.
            OSError: it cannot be read or written.
        """
        file = cls(directory, base_offset)
        records, log = file._read(file._segments), file._read(file._log)
        entries, sound_bytes = sound_entries(log)
        kept: list[RecordHead] = []
        for head in sound_records(records):
            if head.index_end > sound_bytes or (below is not None and head.last_offset >= below):
                break
            kept.append(head)
        if not kept:
            raise CorruptIndexError(f"{file._segments.name}: no segment is left")
        for head in kept:
            file._note(head)
        file._rewrite(
            entries[: file.size_bytes // REMOTE_LOG_INDEX_ENTRY_BYTES], log, records, kept
        )
        return file

    def append(
        self,
        metadata: RemoteLogSegmentMetadata,
        entries: Sequence[RemoteLogIndexEntry],
        *,
        last_offset: int,
    ) -> None:
        """Appends the chunks of the next segment. What a crash leaves of it is cut off when the file is recovered.

        Args:
            metadata: of the segment.
            entries: its chunks that reach the first offset that is not covered yet.
            last_offset: up to here the segment is the partition's.

        Raises:
            OSError: it could not be written; `recover` cuts off what was.
        """
        positioned, encoded = [], bytearray()
        for entry in entries:
            positioned.append((self.size_bytes + len(encoded), entry))
            encoded += entry.encode()
        offsets = encode_remote_offset_index(
            positioned, self.base_offset, after_offset=self._indexed_offset
        )
        times = encode_remote_time_index(
            clipped(entries, last_offset), self.base_offset, largest_ms=self.max_timestamp_ms
        )
        index_end = self.size_bytes + len(encoded)
        record = encode_record(
            metadata,
            first_offset=self.last_offset + 1,
            last_offset=last_offset,
            index_end=index_end,
        )
        for path, data in (
            (self._log, encoded),
            (self._offsets, offsets),
            (self._times, times),
            (self._segments, record),
        ):
            with path.open("ab") as stream:
                stream.write(data)
        self._note_entries(entries)
        [head] = record_heads(record)
        position = self._positions[-1]
        self._note(head._replace(position=position, next_position=position + len(record)))

    def takes(self, entries: Sequence[RemoteLogIndexEntry], last_offset: int) -> bool:
        """Whether the offsets of further chunks can be told relative to the base offset."""
        highest = max([last_offset, *(entry.last_offset for entry in entries)])
        return highest - self.base_offset <= MAX_RELATIVE

    def delete(self) -> None:
        """Deletes all four, the one without which the others do not count first; what is gone already does not matter."""
        for path in (self._segments, self._times, self._offsets, self._log):
            path.unlink(missing_ok=True)

    def find_by_offset(self, offset: int) -> CoveredSegment | None:
        """See `RemoteIndex`."""
        found = next(self._from(bisect_right(self._first_offsets, offset) - 1), None)
        return found if found is not None and offset <= found.last_offset else None

    def find_by_timestamp(self, timestamp_ms: int, min_offset: int) -> CoveredSegment | None:
        """See `RemoteIndex`."""
        times = TimeIndex(self._read(self._times), self.base_offset)
        offsets = OffsetIndex(self._read(self._offsets), self.base_offset)
        from_offset = max(times.lookup(timestamp_ms - 1).offset, min_offset)
        log = self._read(self._log)[: self.size_bytes]
        start = first_reaching(log, offsets.lookup(from_offset).position, from_offset)
        for position, entry in decode_entries(log, start):
            if entry.last_timestamp_ms >= timestamp_ms and entry.last_offset >= min_offset:
                found = next(self._from(bisect_right(self._index_ends, position)), None)
                if found is not None and found.last_offset >= min_offset:
                    return found
        return None

    def next_with_transactions(self, offset: int) -> CoveredSegment | None:
        """See `RemoteIndex`."""
        number = max(bisect_right(self._first_offsets, offset) - 1, 0)
        start = self._positions[number]
        data = self._read(self._segments, start, self._positions[-1] - start)
        for head in self._all_records(data):
            if head.last_offset >= offset and head.may_have_transactions:
                return _covered(data, head)
        return None

    def segments_from(self, offset: int) -> Iterator[CoveredSegment]:
        """Segments from the one that covers an offset on, read one by one.

        Raises:
            CorruptIndexError: the file is damaged.
        """
        return self._from(bisect_right(self._first_offsets, offset) - 1)

    def _from(self, number: int) -> Iterator[CoveredSegment]:
        """Segments by their number in the file."""
        for each in range(number, len(self._first_offsets)) if number >= 0 else ():
            start = self._positions[each]
            data = self._read(self._segments, start, self._positions[each + 1] - start)
            for head in self._all_records(data):
                yield _covered(data, head)

    @property
    def _log(self) -> Path:
        return self._directory / segment_file_name(self.base_offset, REMOTE_LOG_INDEX_SUFFIX)

    @property
    def _offsets(self) -> Path:
        return self._directory / segment_file_name(self.base_offset, REMOTE_OFFSET_INDEX_SUFFIX)

    @property
    def _times(self) -> Path:
        return self._directory / segment_file_name(self.base_offset, REMOTE_TIME_INDEX_SUFFIX)

    @property
    def _segments(self) -> Path:
        return self._directory / segment_file_name(self.base_offset, REMOTE_SEGMENTS_SUFFIX)

    def _all_records(self, data: bytes) -> Iterator[RecordHead]:
        end = 0
        for head in record_heads(data):
            yield head
            end = head.next_position
        if not end or end != len(data):
            raise CorruptIndexError(f"{self._segments.name} is damaged at position {end}")

    def _rewrite(
        self,
        chunks: Sequence[tuple[int, RemoteLogIndexEntry]],
        log: bytes,
        records: bytes,
        kept: Sequence[RecordHead],
    ) -> None:
        entries = [entry for _, entry in chunks]
        ends, number = [], 0
        for head in kept:
            end = head.index_end // REMOTE_LOG_INDEX_ENTRY_BYTES
            ends += clipped(entries[number:end], head.last_offset)
            number = end
        self._note_entries(entries)
        self._segments.write_bytes(b"")  # none counts until all is there
        self._log.write_bytes(log[: self.size_bytes])
        self._offsets.write_bytes(encode_remote_offset_index(chunks, self.base_offset))
        self._times.write_bytes(encode_remote_time_index(ends, self.base_offset))
        self._segments.write_bytes(records[: kept[-1].next_position])

    def _note(self, head: RecordHead) -> None:
        self._first_offsets.append(head.first_offset)
        self._index_ends.append(head.index_end)
        self._positions.append(head.next_position)
        self.last_offset = head.last_offset
        self.size_bytes = head.index_end
        if head.may_have_transactions:
            self.last_transactional_offset = head.last_offset

    def _note_entries(self, entries: Sequence[RemoteLogIndexEntry]) -> None:
        if self.first_timestamp_ms == _NO_TIMESTAMP and entries:
            self.first_timestamp_ms = entries[0].first_timestamp_ms
        for entry in entries:
            self.max_timestamp_ms = max(self.max_timestamp_ms, entry.last_timestamp_ms)
            self._indexed_offset = max(self._indexed_offset, entry.first_offset)

    def _read(self, path: Path, position: int = 0, most_bytes: int = -1) -> bytes:
        try:
            with path.open("rb") as stream:
                stream.seek(position)
                return stream.read(most_bytes)
        except FileNotFoundError as error:
            raise CorruptIndexError(f"{path.name} is missing") from error


def _covered(data: bytes, head: RecordHead) -> CoveredSegment:
    return CoveredSegment(decode_record(data, head), head.first_offset, head.last_offset)
