"""Chunks: whole batches, nothing lost, every offset and position in the right one (SR-32)."""

from itertools import pairwise

import builders
import pytest
from aquifer_core.errors import AquiferError, CorruptRecordError
from aquifer_core.formats.record_batch import complete_batches_size, iter_batches
from aquifer_core.formats.remote_data_id import RemoteDataId
from aquifer_core.formats.remote_log_index import RemoteLogIndex, RemoteLogIndexEntry
from aquifer_storage.domain.chunker import Chunk, Chunker
from hypothesis import given
from hypothesis import strategies as st

BATCH_BYTES = st.integers(0, 700)
GAPS = st.integers(0, 5)
LOGS = st.lists(st.tuples(GAPS, st.integers(1, 4), BATCH_BYTES), max_size=25)
CUTS = st.lists(st.integers(0, 20_000), max_size=30)


def made_log(shape: list[tuple[int, int, int]], start_offset: int) -> bytes:
    """Make a log of batches: gap before, number of records, size of a value."""
    batches, offset = [], start_offset
    for gap, records, value_bytes in shape:
        batches.append(builders.record_batch(offset + gap, records, value_bytes))
        offset += gap + records
    return b"".join(batches)


def pieces_of(log: bytes, cuts: list[int]) -> list[bytes]:
    """Cut a log at the places that lie inside of it."""
    places = sorted({0, len(log), *(cut for cut in cuts if cut < len(log))})
    return [log[start:end] for start, end in pairwise(places)]


def chunked(segment: builders.BuiltSegment, cuts: list[int], chunk_size_bytes: int) -> list[Chunk]:
    """All chunks of a segment."""
    chunker = Chunker(segment.metadata, chunk_size_bytes)
    chunks = [chunk for piece in pieces_of(segment.log, cuts) for chunk in chunker.feed(piece)]
    last = chunker.finish()
    return chunks if last is None else [*chunks, last]


def data_of(chunk: Chunk) -> bytes:
    """A chunk's bytes."""
    return b"".join(bytes(piece) for piece in chunk.pieces)


@given(shape=LOGS, cuts=CUTS, chunk_size_bytes=st.integers(1, 5_000))
def test_chunks_are_whole_batches_and_together_the_log(
    shape: list[tuple[int, int, int]], cuts: list[int], chunk_size_bytes: int
) -> None:
    segment = builders.segment(made_log(shape, 100))
    chunks = chunked(segment, cuts, chunk_size_bytes)
    assert b"".join(map(data_of, chunks)) == segment.log
    position = 0
    for chunk in chunks:
        data = data_of(chunk)
        batches = list(iter_batches(data))
        assert chunk.position == position
        assert chunk.size_bytes == len(data) == complete_batches_size(data)
        assert chunk.first_offset == batches[0].base_offset
        assert chunk.last_offset == batches[-1].last_offset
        assert chunk.first_timestamp_ms == batches[0].base_timestamp_ms
        assert chunk.max_timestamp_ms == max(batch.max_timestamp_ms for batch in batches)
        position += len(data)
    for chunk in chunks[:-1]:
        last_batch = list(iter_batches(data_of(chunk)))[-1]
        assert chunk.size_bytes >= chunk_size_bytes
        assert chunk.size_bytes - last_batch.size_bytes < chunk_size_bytes


@given(shape=LOGS, cuts=CUTS, chunk_size_bytes=st.integers(1, 5_000))
def test_the_chunk_table_finds_every_offset_and_position(
    shape: list[tuple[int, int, int]], cuts: list[int], chunk_size_bytes: int
) -> None:
    segment = builders.segment(made_log(shape, 100))
    chunks = chunked(segment, cuts, chunk_size_bytes)
    table = RemoteLogIndex(
        RemoteLogIndexEntry(
            first_offset=chunk.first_offset,
            last_offset=chunk.last_offset,
            first_timestamp_ms=chunk.first_timestamp_ms,
            last_timestamp_ms=chunk.max_timestamp_ms,
            data_length_bytes=chunk.size_bytes,
            data_id=RemoteDataId(
                segment_id=segment.metadata.segment_id.id,
                position=chunk.position,
                stored_length_bytes=chunk.size_bytes,
                crc32c=0,
            ),
        )
        for chunk in chunks
    )
    for number, chunk in enumerate(chunks):
        for batch in iter_batches(data_of(chunk)):
            assert table.find_by_offset(batch.base_offset) == number
            assert table.find_by_offset(batch.last_offset) == number
            assert table.find_by_position(chunk.position + batch.position) == number
        assert table.find_by_position(chunk.position + chunk.size_bytes - 1) == number


@given(
    shape=st.lists(st.tuples(GAPS, st.integers(1, 4), BATCH_BYTES), min_size=1, max_size=10),
    cuts=CUTS,
    place=st.floats(0, 1, exclude_max=True),
    bit=st.integers(0, 7),
)
def test_a_flipped_bit_is_refused_or_lies_outside_of_the_checksum(
    shape: list[tuple[int, int, int]], cuts: list[int], place: float, bit: int
) -> None:
    segment = builders.segment(made_log(shape, 100))
    log = bytearray(segment.log)
    position = int(place * len(log))
    log[position] ^= 1 << bit
    damaged = builders.BuiltSegment(metadata=segment.metadata, data=segment.data, log=bytes(log))
    inside = next(
        position - batch.position
        for batch in iter_batches(segment.log)
        if batch.position <= position < batch.position + batch.size_bytes
    )
    # Base offset and leader epoch are outside of a batch's CRC (K-6.2).
    if inside < 8 or 12 <= inside < 16:
        try:
            chunks = chunked(damaged, cuts, 1_000)
        except AquiferError:
            return
        assert b"".join(map(data_of, chunks)) == bytes(log)
    else:
        with pytest.raises(CorruptRecordError):
            chunked(damaged, cuts, 1_000)


@given(data=st.binary(max_size=300), cuts=CUTS)
def test_arbitrary_bytes_are_refused(data: bytes, cuts: list[int]) -> None:
    metadata = builders.segment().with_metadata(segment_size_bytes=len(data)).metadata
    segment = builders.BuiltSegment(metadata=metadata, data=builders.segment().data, log=data)
    if not data:
        assert chunked(segment, cuts, 100) == []
        return
    with pytest.raises(AquiferError):
        chunked(segment, cuts, 100)


def test_pieces_that_may_change_later_are_copied() -> None:
    segment = builders.segment(size_bytes=10_000)
    buffer = bytearray(1_000)
    chunker = Chunker(segment.metadata, 2_000)
    found = b""
    for start in range(0, len(segment.log), len(buffer)):
        piece = segment.log[start : start + len(buffer)]
        buffer[: len(piece)] = piece
        chunks = list(chunker.feed(memoryview(buffer)[: len(piece)]))
        buffer[:] = bytes(len(buffer))
        found += b"".join(map(data_of, chunks))
    last = chunker.finish()
    assert last is not None
    assert found + data_of(last) == segment.log
