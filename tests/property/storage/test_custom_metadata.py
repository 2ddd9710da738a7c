"""Custom metadata: every form is understood again, and whatever else stands there makes no wrong byte."""

import asyncio
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import builders
import pytest
from aquifer_core.formats.remote_data_id import RemoteDataId
from aquifer_core.formats.remote_log_index import RemoteLogIndex, RemoteLogIndexEntry
from aquifer_core.ids import KafkaUuid
from aquifer_core.segment import MAX_CUSTOM_METADATA_BYTES, RemoteLogSegmentMetadata
from aquifer_storage.adapters.filesystem import FilesystemObjectStore
from aquifer_storage.domain.custom_metadata import (
    MAX_CHUNKS,
    RemoteLogIndexLocation,
    decode_chunks,
    decode_location,
    encode_chunks,
)
from aquifer_storage.domain.options import StorageOptions
from aquifer_storage.domain.remote_storage import RemoteStorage
from contract.remote_storage_manager import joined
from hypothesis import given, settings
from hypothesis import strategies as st

SEGMENT = builders.segment(size_bytes=9_000)
INT32 = (1 << 31) - 1
CHUNKS = st.tuples(
    st.integers(0, 1000),
    st.integers(0, 1000),
    st.integers(1, 1 << 24),
    st.integers(0, 1 << 24),
    st.integers(0, (1 << 32) - 1),
    st.booleans(),
)
"""Offsets left out before, offsets after the first, length, stored length, CRC-32C, whether it is compressed."""


def table_of(
    metadata: RemoteLogSegmentMetadata, chunks: list[tuple[int, int, int, int, int, bool]]
) -> RemoteLogIndex:
    """A chunk table as a copy makes it, but for the timestamps."""
    entries, offset, position = [], metadata.start_offset, 0
    for gap, span, length, stored_length, crc, is_compressed in chunks:
        data_id = RemoteDataId(
            segment_id=metadata.segment_id.id,
            position=position,
            stored_length_bytes=stored_length,
            crc32c=crc,
            is_compressed=is_compressed,
        )
        entries.append(
            RemoteLogIndexEntry(
                first_offset=offset + gap,
                last_offset=offset + gap + span,
                first_timestamp_ms=-1,
                last_timestamp_ms=-1,
                data_length_bytes=length,
                data_id=data_id,
            )
        )
        offset += gap + span + 1
        position += stored_length
    return RemoteLogIndex(entries)


@given(chunks=st.lists(CHUNKS, min_size=1, max_size=MAX_CHUNKS + 2), start=st.integers(0, 1 << 60))
def test_a_short_table_is_understood_again_and_a_long_one_is_not_told(
    chunks: list[tuple[int, int, int, int, int, bool]], start: int
) -> None:
    metadata = replace(
        SEGMENT.metadata,
        start_offset=start,
        end_offset=start + INT32,
        segment_size_bytes=sum(chunk[2] for chunk in chunks),
        segment_leader_epochs={0: start},
    )
    table = table_of(metadata, chunks)
    encoded = encode_chunks(metadata, table)
    if len(chunks) > MAX_CHUNKS:
        assert encoded is None
        return
    assert encoded is not None
    assert len(encoded) <= MAX_CUSTOM_METADATA_BYTES, "what Kafka keeps by default"
    told = decode_chunks(replace(metadata, custom_metadata=encoded))
    assert told is not None
    assert told.entries == table.entries
    assert decode_location(encoded) is None
    other = builders.segment(SEGMENT.log).metadata.segment_id
    assert decode_chunks(replace(metadata, segment_id=other, custom_metadata=encoded)) is None


@given(position=st.integers(0, 1 << 62), size_bytes=st.integers(1, INT32))
def test_a_location_is_understood_again(position: int, size_bytes: int) -> None:
    location = RemoteLogIndexLocation(position=position, size_bytes=size_bytes)
    encoded = location.encode()
    assert decode_location(encoded) == location
    assert decode_chunks(replace(SEGMENT.metadata, custom_metadata=encoded)) is None


@given(custom=st.binary(max_size=MAX_CUSTOM_METADATA_BYTES))
def test_what_is_not_ours_is_no_table(custom: bytes) -> None:
    assert decode_chunks(replace(SEGMENT.metadata, custom_metadata=custom)) is None


def test_the_form_of_a_table_stays() -> None:
    """Metadata keeps it for as long as the segment lives."""
    segment_id = KafkaUuid.parse("AAAAAAAAQACAAAAAAAAAAg")
    metadata = replace(
        SEGMENT.metadata,
        segment_id=replace(SEGMENT.metadata.segment_id, id=segment_id),
        segment_size_bytes=500,
    )
    table = table_of(metadata, [(0, 9, 200, 200, 0xDEADBEEF, False), (5, 0, 300, 70, 1, True)])
    encoded = encode_chunks(metadata, table)
    assert encoded is not None
    assert encoded.hex() == (
        "024dd9bb1c"
        "0000000000000009000000c8000000c8deadbeef00"
        "0000000f0000000f0000012c000000460000000101"
    )
    told = decode_chunks(replace(metadata, custom_metadata=encoded))
    assert told is not None
    assert told.entries == table.entries


@pytest.fixture(scope="module")
def store() -> Iterator[tuple[Path, bytes]]:
    """A store with the segment in it, and what its copy answered."""

    async def copy(root: Path) -> bytes:
        storage = opened(root)
        result = await storage.copy_log_segment_data(SEGMENT.metadata, SEGMENT.data)
        (stored,) = [found async for found in storage.list_stored_segments()]
        await storage.close()
        assert result.custom_metadata is not None
        assert stored.custom_metadata == result.custom_metadata, "recovery finds the same"
        return result.custom_metadata

    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder), asyncio.run(copy(Path(folder)))


def opened(root: Path) -> RemoteStorage:
    """A process over the store that has read nothing yet."""
    options = StorageOptions(chunk_size_bytes=3_000)
    return RemoteStorage(
        FilesystemObjectStore(root, threads=1), options=options, writer_version="1"
    )


@given(
    place=st.integers(0, MAX_CUSTOM_METADATA_BYTES),
    flip=st.integers(0, 255),
    cut=st.integers(0, MAX_CUSTOM_METADATA_BYTES),
    other=st.none() | st.binary(max_size=MAX_CUSTOM_METADATA_BYTES),
)
@settings(max_examples=40, deadline=None)
def test_whatever_custom_metadata_says_the_right_bytes_are_read(
    store: tuple[Path, bytes], place: int, flip: int, cut: int, other: bytes | None
) -> None:
    """The manifest decides when it is damaged, cut short, of a later version or of something else."""
    root, told = store
    custom = bytearray(told if other is None else other)
    if place < len(custom):
        custom[place] ^= flip
    metadata = replace(SEGMENT.metadata, custom_metadata=bytes(custom[: max(0, len(custom) - cut)]))

    async def read() -> None:
        storage = opened(root)
        assert await joined(storage.fetch_log_segment(metadata, 0)) == SEGMENT.log
        await storage.close()

    asyncio.run(read())
