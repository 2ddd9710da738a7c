"""Parts of a remote read: the batches that reading from the front would have chosen, wherever the bytes are cut."""

from itertools import pairwise

import builders
from aquifer_broker.tiering.record_run import RecordRun
from aquifer_core.formats.record_batch import iter_batches
from hypothesis import given
from hypothesis import strategies as st

BATCHES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 4), st.sampled_from([0, 90, 30_000, 70_000])),
    min_size=1,
    max_size=12,
)


def _chosen(data: bytes, fetch_offset: int, max_bytes: int, min_one_batch: bool) -> bytes:
    """The definition."""
    left = [batch for batch in iter_batches(data) if batch.last_offset >= fetch_offset]
    if not left:
        return b""
    start = end = left[0].position
    for batch in left:
        if batch.position + batch.size_bytes - start > max_bytes:
            break
        end = batch.position + batch.size_bytes
    if end == start and min_one_batch:
        end = start + left[0].size_bytes
    return data[start:end]


@given(
    batches=BATCHES,
    cuts=st.lists(st.integers(0, 1_000_000), max_size=10),
    requests=st.lists(
        st.tuples(st.integers(0, 110), st.integers(1, 200_000), st.booleans()), max_size=20
    ),
)
def test_parts_are_chosen_as_by_reading_from_the_front(
    batches: list[tuple[int, int, int]],
    cuts: list[int],
    requests: list[tuple[int, int, bool]],
) -> None:
    data, offset = b"", 0
    for hole, records, value_bytes in batches:
        data += builders.record_batch(offset + hole, records, value_bytes)
        offset += hole + records
    borders = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    pieces = [data[start:end] for start, end in pairwise(borders)]
    run = RecordRun(0, pieces)

    assert run.end_offset == offset
    for fetch_offset, max_bytes, min_one_batch in requests:
        part = run.part(fetch_offset, max_bytes, min_one_batch=min_one_batch)
        joined = b"".join(part.pieces)
        assert joined == _chosen(data, fetch_offset, max_bytes, min_one_batch)
        assert part.size_bytes == len(joined)
        if joined:
            assert part.end_offset == list(iter_batches(joined))[-1].next_offset
