"""Reads of a log: from an offset to bytes of one segment, bounded by what the reader may see."""

from collections.abc import Sequence

from aquifer_core.errors import OffsetOutOfRangeError
from aquifer_core.formats.transaction_index import AbortedTransaction, collect_aborted

from aquifer_broker.log.log_segment import LogSegment
from aquifer_broker.log.log_state import LogState
from aquifer_broker.log.log_values import FetchIsolation, LogRead

__all__ = ["local_aborted_transactions", "read_log"]


async def read_log(
    state: LogState,
    fetch_offset: int,
    max_bytes: int,
    *,
    min_one_batch: bool,
    isolation: FetchIsolation,
) -> LogRead:
    """Reads file bytes from the batch that holds an offset, of one segment.

    The bytes may end with a partial batch only when the size cuts them, never because of the bound.

    Raises:
        OffsetOutOfRangeError: The offset is outside the local log.
        OSError: The disk failed.
    """
    check_in_local_log(state, fetch_offset)
    offsets = state.offsets()
    aborted: Sequence[AbortedTransaction] | None = None
    if isolation is FetchIsolation.TXN_COMMITTED:
        aborted = ()
    bound = state.upper_bound(isolation)
    located = _locate(state, fetch_offset) if fetch_offset < bound else None
    if located is None:
        return LogRead(records=b"", offsets=offsets, aborted_transactions=aborted)
    segment, position, first_end = located
    end = _end_position(state, segment, bound)
    size = min(max_bytes, end - position)
    if size < first_end - position:
        # A batch larger than the limit is returned alone, or not at all.
        size = first_end - position if min_one_batch and first_end <= end else 0
    if size <= 0:
        return LogRead(records=b"", offsets=offsets, aborted_transactions=aborted)
    if isolation is FetchIsolation.TXN_COMMITTED:
        aborted = _aborted(state, segment, fetch_offset, position, size)
    records = await segment.log_file.read(position, size)
    return LogRead(records=records, offsets=offsets, aborted_transactions=aborted)


def check_in_local_log(state: LogState, offset: int) -> None:
    """Refuses offsets outside [local log start, log end].

    Raises:
        OffsetOutOfRangeError: It is outside.
    """
    start, end = state.local_log_start_offset, state.log_end_offset
    if not start <= offset <= end:
        raise OffsetOutOfRangeError(
            f"offset {offset} of {state.topic_id_partition} is outside the local log {start}..{end}",
            metadata={"offset": str(offset), "start": str(start), "end": str(end)},
        )


def _locate(state: LogState, offset: int) -> tuple[LogSegment, int, int] | None:
    """Segment, position and end position of the first batch at or after an offset; holes are skipped."""
    for segment in state.segments.from_offset(offset):
        place = segment.find(offset)
        if place is not None:
            return segment, place.position, place.end_position
    return None


def _end_position(state: LogState, segment: LogSegment, bound: int) -> int:
    """Position behind the last batch of a segment that lies wholly below an offset."""
    if bound >= state.end_of(segment):
        return segment.size_bytes
    place = segment.find(bound)
    return segment.size_bytes if place is None else place.position


def _aborted(
    state: LogState, first: LogSegment, fetch_offset: int, position: int, size: int
) -> Sequence[AbortedTransaction]:
    upper_bound = first.read_upper_bound(position, size, state.end_of(first))
    return _collect(state, first.base_offset, fetch_offset, upper_bound)


def local_aborted_transactions(
    state: LogState, fetch_offset: int, upper_bound: int
) -> Sequence[AbortedTransaction]:
    """Aborted transactions of a range, as far as local segments know of them."""
    return _collect(state, state.segments.first.base_offset, fetch_offset, upper_bound)


def _collect(
    state: LogState, from_base_offset: int, fetch_offset: int, upper_bound: int
) -> Sequence[AbortedTransaction]:
    found: list[AbortedTransaction] = []
    for segment in state.segments.from_offset(from_base_offset):
        chosen, complete = collect_aborted(
            segment.transaction_index.entries, fetch_offset, upper_bound
        )
        found += chosen
        if complete:
            break
    return found
