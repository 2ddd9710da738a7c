"""A rolled segment as tiering copies it: its files as `LogSegmentData` (K-3.2)."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Final

from aquifer_core.errors import RemoteResourceNotFoundError
from aquifer_core.formats.leader_epoch_checkpoint import format_leader_epochs
from aquifer_core.segment import LogSegmentData

from aquifer_broker.log.log_file import LogFile
from aquifer_broker.log.log_state import LogState
from aquifer_broker.log.log_values import RolledSegment
from aquifer_broker.log.open_files import needs_free_file
from aquifer_broker.log.producer_snapshots import snapshot_path
from aquifer_broker.log.storage_guard import LogGuard

__all__ = ["FileLogSource", "describe_rolled_segments", "export_segment"]

_PIECE_BYTES: Final = 1 << 20


class FileLogSource:
    """The bytes of a `.log` file in pieces of 1 MiB, read without blocking the event loop."""

    __slots__ = ("_file", "_guard", "size_bytes")

    def __init__(self, file: LogFile, guard: LogGuard) -> None:
        self._file = file
        self._guard = guard
        self.size_bytes = file.size_bytes

    async def chunks(self) -> AsyncIterator[bytes | memoryview]:
        """The file's bytes in order.

        Raises:
            LogStorageError: The disk failed.
        """
        position = 0
        while position < self.size_bytes:
            wanted = min(_PIECE_BYTES, self.size_bytes - position)
            with self._guard:
                piece = await self._file.read(position, wanted)
                if not len(piece):
                    raise OSError(f"{self._file.path} ends at {position} of {self.size_bytes}")
            position += len(piece)
            yield memoryview(piece)


def describe_rolled_segments(
    state: LogState, from_offset: int, limit: int | None
) -> Sequence[RolledSegment]:
    """Every segment but the active one, from the one that may hold an offset on; at most `limit`."""
    segments = state.segments.from_offset(from_offset)
    if limit is not None:
        segments = segments[: limit + 1]
    return [
        RolledSegment(
            base_offset=segment.base_offset,
            end_offset=following.base_offset - 1,
            size_bytes=segment.size_bytes,
            max_timestamp_ms=segment.largest_timestamp_ms,
            has_transactions=not segment.transaction_index.is_empty,
        )
        for segment, following in pairwise(segments)
    ]


@asynccontextmanager
async def export_segment(
    state: LogState, base_offset: int, guard: LogGuard
) -> AsyncIterator[LogSegmentData]:
    """The parts of a rolled segment. Its `.log` file stays readable inside, also when retention deletes it.

    Raises:
        RemoteResourceNotFoundError: There is no such segment, or it is the active one.
    """
    segment = state.segments.get(base_offset)
    following = None if segment is None else state.segments.following(segment)
    if segment is None or following is None:
        raise RemoteResourceNotFoundError(
            f"{state.topic_id_partition} has no rolled segment with base offset {base_offset}"
        )
    end = following.base_offset
    transactions = segment.transaction_index
    with segment.log_file.pinned():
        with guard, needs_free_file(segment.log_file.path):
            data = LogSegmentData(
                log_segment=FileLogSource(segment.log_file, guard),
                offset_index=bytes(segment.offset_index_file.data),
                time_index=bytes(segment.time_index_file.data),
                transaction_index=None if transactions.is_empty else transactions.path.read_bytes(),
                producer_snapshot=_snapshot(state, end),
                leader_epochs=format_leader_epochs(state.leader_epochs.entries_in_range(-1, end)),
            )
        yield data


def _snapshot(state: LogState, offset: int) -> bytes | None:
    """The snapshot before an offset; None when the log is older than snapshots."""
    try:
        return snapshot_path(state.directory, offset).read_bytes()
    except FileNotFoundError:
        return None
