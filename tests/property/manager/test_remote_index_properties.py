"""A local remote index against a list: whatever is appended, cut, cleaned and opened again (SR-32, SR-33)."""

import tempfile
from itertools import pairwise
from pathlib import Path

from aquifer_core.formats.offset_index import OffsetIndex
from aquifer_core.formats.remote_data_id import RemoteDataId
from aquifer_core.formats.remote_log_index import RemoteLogIndexEntry
from aquifer_core.formats.time_index import TimeIndex
from aquifer_core.ids import RemoteLogSegmentId
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_manager.adapters.remote_index import IndexDirectory
from aquifer_manager.domain.remote_index import CoveredSegment
from fixtures.manager_world import partition
from hypothesis import given, settings
from hypothesis import strategies as st

TIP = partition()

APPEND = st.tuples(
    st.just("append"),
    st.integers(0, 1).map(lambda gap: gap * 7),  # offsets that nothing holds
    st.integers(0, 5),  # offsets below what is covered that the segment has, too
    st.lists(st.tuples(st.integers(1, 9), st.integers(-1, 60)), min_size=1, max_size=4),
    st.integers(0, 4),  # offsets at its end that are another epoch's
    st.booleans(),
)
OPERATION = st.one_of(
    APPEND,
    APPEND,
    st.tuples(st.just("cut"), st.integers(0, 120)),
    st.tuples(st.just("clean"), st.integers(0, 120)),
    st.tuples(st.just("open")),
)


class Model:
    """What an index should answer: its segments with their chunks."""

    def __init__(self) -> None:
        self.covered: list[tuple[CoveredSegment, list[RemoteLogIndexEntry]]] = []
        self.files: list[int] = []

    @property
    def end(self) -> int:
        return self.covered[-1][0].last_offset if self.covered else -1

    @property
    def start(self) -> int | None:
        start = None
        for later, earlier in pairwise([*reversed(self.covered), None]):
            assert later is not None
            start = later[0].first_offset
            if earlier is None or earlier[0].last_offset + 1 != start:
                break
        return start

    def cut(self, offset: int) -> None:
        self.covered = [each for each in self.covered if each[0].last_offset < offset]

    def at(self, offset: int) -> CoveredSegment | None:
        held = (each for each, _ in self.covered if each.first_offset <= offset <= each.last_offset)
        return next(held, None)

    def since(self, timestamp_ms: int, min_offset: int) -> CoveredSegment | None:
        for segment, chunks in self.covered:
            for chunk in chunks:
                reaches = min(chunk.last_offset, segment.last_offset) >= min_offset
                if chunk.last_timestamp_ms >= timestamp_ms and reaches:
                    return segment
        return None

    def transactional(self, offset: int) -> CoveredSegment | None:
        for segment, _ in self.covered:
            if segment.last_offset >= offset and not segment.metadata.txn_index_empty:
                return segment
        return None


def grown(model: Model, index: IndexDirectory, operation: tuple[object, ...]) -> None:
    _, gap, overlap, sizes, foreign, transactional = operation
    assert isinstance(gap, int)
    assert isinstance(overlap, int)
    assert isinstance(foreign, int)
    assert isinstance(sizes, list)
    first = model.end + 1 + gap
    start = max(0, first - overlap)
    bounds = [start]
    for size, _ in sizes:
        bounds.append(bounds[-1] + size)
    end = bounds[-1] - 1
    if end < first:
        return
    metadata = RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId.generate(TIP),
        start_offset=start,
        end_offset=end,
        broker_id=1,
        max_timestamp_ms=max(time for _, time in sizes),
        event_timestamp_ms=0,
        segment_size_bytes=1000 * len(sizes),
        segment_leader_epochs={0: start},
        txn_index_empty=not transactional,
    )
    chunks = [
        RemoteLogIndexEntry(
            first_offset=low,
            last_offset=high - 1,
            first_timestamp_ms=time,
            last_timestamp_ms=time,
            data_length_bytes=1000,
            data_id=RemoteDataId(
                segment_id=metadata.segment_id.id,
                position=0,
                stored_length_bytes=1000,
                crc32c=0,
            ),
        )
        for (low, high), (_, time) in zip(pairwise(bounds), sizes, strict=True)
    ]
    last = max(first, end - foreign)
    index.append(metadata, chunks, first, last)
    taken = [each for each in chunks if each.last_offset >= first and each.first_offset <= last]
    model.covered.append((CoveredSegment(metadata, first, last), taken))


@settings(max_examples=60, deadline=None)
@given(st.lists(OPERATION, min_size=1, max_size=20), st.integers(80, 600), st.integers(1, 80))
def test_an_index_answers_as_a_list_does(
    operations: list[tuple[object, ...]], rotate_bytes: int, rotate_ms: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:

        def opened() -> IndexDirectory:
            return IndexDirectory.open(Path(folder), rotate_bytes=rotate_bytes, rotate_ms=rotate_ms)

        model, index = Model(), opened()
        index.set_lineage([LeaderEpochEntry(0, 0)])
        for operation in operations:
            match operation:
                case ("append", *_):
                    grown(model, index, operation)
                case ("cut", int(offset)):
                    index.cut(offset)
                    model.cut(offset)
                case ("clean", int(offset)):
                    index.clean(offset)
                    kept = [
                        each for each in model.covered if index.find_by_offset(each[0].last_offset)
                    ]
                    assert all(
                        each in kept for each in model.covered if each[0].last_offset >= offset
                    )
                    model.covered = kept
                case _:
                    index = opened()
            assert (index.start_offset, index.end_offset) == (model.start, model.end)
            for offset in range(model.end + 2):
                assert index.find_by_offset(offset) == model.at(offset)
        for path in Path(folder).glob("*.remoteTimeIndex"):
            base = int(path.stem)
            TimeIndex(path.read_bytes(), base).verify_entries()
            OffsetIndex(path.with_suffix(".remoteOffsetIndex").read_bytes(), base).verify_entries()
        for offset in range(0, model.end + 2, 3):
            assert index.next_with_transactions(offset) == model.transactional(offset)
            for timestamp_ms in range(0, 62, 5):
                assert index.find_by_timestamp(timestamp_ms, offset) == model.since(
                    timestamp_ms, offset
                )
