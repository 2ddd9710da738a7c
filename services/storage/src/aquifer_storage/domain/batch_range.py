"""Chooses whole record batches of a chunk."""

from typing import NamedTuple

from aquifer_core.formats.record_batch import RecordBatch, iter_batches


class BatchRange(NamedTuple):
    """Positions in a chunk: of the first batch, and after the last."""

    start: int
    end: int


def batches_from(
    chunk: bytes, fetch_offset: int, max_bytes: int, *, min_one_batch: bool
) -> BatchRange:
    """Choose the batches from the one that holds an offset, or the next, as many as fit.

    Args:
        chunk: whole batches.
        fetch_offset: the offset.
        max_bytes: most bytes to choose.
        min_one_batch: choose the first batch even when it is larger.

    Raises:
        CorruptRecordError: the chunk does not consist of batches.
    """
    start = _start(chunk, fetch_offset)
    if len(chunk) - start <= max_bytes:
        return BatchRange(start, len(chunk))
    end = start
    for batch in iter_batches(chunk, start):
        following = batch.position + batch.size_bytes
        if following - start > max_bytes:
            break
        end = following
    if end == start and min_one_batch:
        end = start + RecordBatch(chunk, start).size_bytes
    return BatchRange(start, end)


def _start(chunk: bytes, fetch_offset: int) -> int:
    for batch in iter_batches(chunk):
        if batch.last_offset >= fetch_offset:
            return batch.position
    return len(chunk)
