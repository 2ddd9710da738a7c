"""Whole batches of a chunk: chosen as by reading it from the front, whatever was asked before."""

import builders
from aquifer_core.formats.record_batch import iter_batches
from aquifer_storage.domain.batch_range import BatchRange, ChunkBatches
from hypothesis import given
from hypothesis import strategies as st


def naive(chunk: bytes, fetch_offset: int, max_bytes: int, min_one_batch: bool) -> BatchRange:
    """The definition."""
    left = [batch for batch in iter_batches(chunk) if batch.last_offset >= fetch_offset]
    if not left:
        return BatchRange(len(chunk), len(chunk))
    start = end = left[0].position
    for batch in left:
        if batch.position + batch.size_bytes - start > max_bytes:
            break
        end = batch.position + batch.size_bytes
    if end == start and min_one_batch:
        end = start + left[0].size_bytes
    return BatchRange(start, end)


BATCHES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 4), st.sampled_from([0, 90, 30_000, 70_000])),
    min_size=1,
    max_size=12,
)


@given(
    batches=BATCHES,
    requests=st.lists(
        st.tuples(st.integers(0, 110), st.integers(1, 200_000), st.booleans()), max_size=20
    ),
)
def test_batches_are_chosen_as_by_reading_from_the_front(
    batches: list[tuple[int, int, int]], requests: list[tuple[int, int, bool]]
) -> None:
    """T27: holes in the offsets, batches larger than the limit, any order of requests."""
    chunk, offset = b"", 0
    for hole, records, value_bytes in batches:
        chunk += builders.record_batch(offset + hole, records, value_bytes)
        offset += hole + records
    found = ChunkBatches(chunk)
    for fetch_offset, max_bytes, min_one_batch in requests:
        chosen = found.choose(fetch_offset, max_bytes, min_one_batch=min_one_batch)
        assert chosen == naive(chunk, fetch_offset, max_bytes, min_one_batch)
