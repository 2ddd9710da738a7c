"""Chunks and index parts: whatever is stored opens alone to what it was, and nothing else opens."""

import gzip
import secrets
from typing import Final

import builders
import pytest
from aquifer_core.errors import CorruptSegmentError
from aquifer_core.formats.batch_layout import CompressionCodec
from aquifer_core.formats.checksum import crc32c
from aquifer_core.formats.records import Record, encode_batch
from aquifer_core.formats.remote_data_id import RemoteDataId
from aquifer_core.formats.remote_log_index import RemoteLogIndexEntry
from aquifer_core.ids import KafkaUuid
from aquifer_storage.domain.chunker import Chunk, Chunker
from aquifer_storage.domain.manifest import BundlePart
from aquifer_storage.domain.ports import StoredChunk
from aquifer_storage.domain.segment_cipher import SegmentCipher
from aquifer_storage.domain.transform import SegmentTransform
from aquifer_storage.domain.zstd_codec import compress, decompress
from hypothesis import assume, given, settings
from hypothesis import strategies as st

CODECS: Final = ["none", "zstd"]
TEXT: Final = b"GET /a/quite/usual/path HTTP/1.1 200 1234 "

BATCHES = st.lists(
    st.tuples(
        st.sampled_from(["text", "random", "empty"]),
        st.sampled_from([CompressionCodec.NONE, CompressionCodec.GZIP]),
        st.integers(1, 600),
    ),
    min_size=1,
    max_size=12,
)


def made_log(shape: list[tuple[str, CompressionCodec, int]]) -> bytes:
    """Make a log of batches: kind of values, codec of the producer, size of a value."""
    batches = []
    for offset, (kind, codec, size) in enumerate(shape):
        value = {"text": (TEXT * 600)[:size], "random": secrets.token_bytes(size), "empty": b""}[
            kind
        ]
        record = Record(offset=100 + offset, timestamp_ms=builders.BASE_TIMESTAMP_MS, value=value)
        compress = gzip.compress if codec is CompressionCodec.GZIP else None
        batches.append(encode_batch([record], codec=codec, compress=compress))
    return b"".join(batches)


def transform(codec: str, *, sealed: bool, segment_id: KafkaUuid | None = None) -> SegmentTransform:
    """A transform with a new data key."""
    segment_id = segment_id or KafkaUuid.random()
    cipher = SegmentCipher(secrets.token_bytes(32), segment_id) if sealed else None
    return SegmentTransform(segment_id=segment_id, cipher=cipher, codec=codec)


def chunks_of(log: bytes, chunk_size_bytes: int) -> list[Chunk]:
    """The chunks of a log."""
    chunker = Chunker(builders.segment(log).metadata, chunk_size_bytes)
    chunks = list(chunker.feed(log))
    last = chunker.finish()
    return chunks if last is None else [*chunks, last]


def entry_of(chunk: Chunk, stored: StoredChunk) -> RemoteLogIndexEntry:
    """The entry of the chunk table."""
    data = joined(stored)
    return RemoteLogIndexEntry(
        first_offset=chunk.first_offset,
        last_offset=chunk.last_offset,
        first_timestamp_ms=chunk.first_timestamp_ms,
        last_timestamp_ms=chunk.max_timestamp_ms,
        data_length_bytes=chunk.size_bytes,
        data_id=RemoteDataId(
            segment_id=KafkaUuid.random(),
            position=0,
            stored_length_bytes=len(data),
            crc32c=crc32c(data),
            is_compressed=stored.is_compressed,
            is_encrypted=stored.is_encrypted,
        ),
    )


def joined(stored: StoredChunk) -> bytes:
    """The stored bytes."""
    return b"".join(bytes(piece) for piece in stored.pieces)


def original(chunk: Chunk) -> bytes:
    """A chunk's bytes."""
    return b"".join(bytes(piece) for piece in chunk.pieces)


@given(
    shape=BATCHES,
    chunk_size_bytes=st.integers(1, 3_000),
    codec=st.sampled_from(CODECS),
    sealed=st.booleans(),
)
@settings(deadline=None)
def test_each_chunk_opens_alone_to_what_it_was(
    shape: list[tuple[str, CompressionCodec, int]],
    chunk_size_bytes: int,
    codec: str,
    sealed: bool,
) -> None:
    using = transform(codec, sealed=sealed)
    encoded = [
        (number, chunk, using.encode(number, chunk))
        for number, chunk in enumerate(chunks_of(made_log(shape), chunk_size_bytes))
    ]
    for number, chunk, stored in reversed(encoded):
        data = joined(stored)
        assert len(data) <= chunk.size_bytes + using.overhead_bytes
        assert stored.is_encrypted is sealed
        assert using.decode(number, entry_of(chunk, stored), data) == original(chunk)


@given(
    shape=BATCHES,
    codec=st.sampled_from(CODECS),
    place=st.floats(0, 1, exclude_max=True),
    flip=st.integers(1, 255),
    cut=st.booleans(),
)
@settings(deadline=None)
def test_a_sealed_chunk_that_was_tampered_with_does_not_open(
    shape: list[tuple[str, CompressionCodec, int]],
    codec: str,
    place: float,
    flip: int,
    cut: bool,
) -> None:
    using = transform(codec, sealed=True)
    (chunk,) = chunks_of(made_log(shape), 1 << 20)
    stored = using.encode(0, chunk)
    data = bytearray(joined(stored))
    position = int(place * len(data))
    if cut:
        del data[position:]
    else:
        data[position] ^= flip
    with pytest.raises(CorruptSegmentError) as raised:
        using.decode(0, entry_of(chunk, stored), bytes(data))
    assert raised.value.metadata["chunk"] == "0"


@given(shape=BATCHES, codec=st.sampled_from(CODECS))
@settings(deadline=None)
def test_a_sealed_chunk_opens_nowhere_else(
    shape: list[tuple[str, CompressionCodec, int]], codec: str
) -> None:
    """Swapped chunks, another segment's chunk under the same key, another key, another flag, an index part."""
    segment_id, data_key = KafkaUuid.random(), secrets.token_bytes(32)
    using = SegmentTransform(
        segment_id=segment_id, cipher=SegmentCipher(data_key, segment_id), codec=codec
    )
    (chunk,) = chunks_of(made_log(shape), 1 << 20)
    stored = using.encode(3, chunk)
    data, entry = joined(stored), entry_of(chunk, stored)
    assert using.decode(3, entry, data) == original(chunk)
    other_id = KafkaUuid.random()
    elsewhere = SegmentTransform(segment_id=other_id, cipher=SegmentCipher(data_key, other_id))
    foreign = transform(codec, sealed=True, segment_id=segment_id)
    flipped = entry_of(
        chunk, StoredChunk(pieces=[data], is_compressed=not stored.is_compressed, is_encrypted=True)
    )
    plain = entry_of(chunk, StoredChunk(pieces=[data], is_compressed=stored.is_compressed))
    unsealed = SegmentTransform(segment_id=segment_id)
    for opener, number, claimed in [
        (using, 4, entry),
        (elsewhere, 3, entry),
        (foreign, 3, entry),
        (using, 3, flipped),
        (using, 3, plain),
        (unsealed, 3, entry),
    ]:
        with pytest.raises(CorruptSegmentError):
            opener.decode(number, claimed, data)
    with pytest.raises(CorruptSegmentError):
        using.open_part(list(BundlePart)[3], data)


@given(
    data=st.binary(max_size=500),
    part=st.sampled_from(BundlePart),
    other=st.sampled_from(BundlePart),
)
def test_an_index_part_opens_to_what_it_was_and_only_in_its_place(
    data: bytes, part: BundlePart, other: BundlePart
) -> None:
    using = transform("none", sealed=True)
    sealed = bytes(using.seal_part(part, data))
    assert len(sealed) == len(data) + using.overhead_bytes
    assert using.open_part(part, sealed) == data
    assume(other is not part)
    with pytest.raises(CorruptSegmentError):
        using.open_part(other, sealed)


@given(data=st.binary(max_size=200), length=st.integers(1, 1 << 40))
def test_arbitrary_bytes_are_no_compressed_chunk(data: bytes, length: int) -> None:
    (chunk,) = chunks_of(builders.segment().log, 1 << 20)
    entry = entry_of(chunk, StoredChunk(pieces=[data], is_compressed=True))
    with pytest.raises(CorruptSegmentError):
        transform("zstd", sealed=False).decode(0, entry, data)


@pytest.mark.parametrize(
    ("kinds", "is_compressed"),
    [
        ([("text", CompressionCodec.NONE)] * 10, True),
        ([("text", CompressionCodec.GZIP)] * 10, False),
        ([("random", CompressionCodec.NONE)] * 10, False),
        ([("text", CompressionCodec.NONE)] * 8 + [("text", CompressionCodec.GZIP)] * 2, True),
    ],
    ids=["text", "compressed by the producer", "random", "mostly not compressed"],
)
def test_only_what_shrinks_is_compressed(
    kinds: list[tuple[str, CompressionCodec]], is_compressed: bool
) -> None:
    log = made_log([(kind, codec, 20_000) for kind, codec in kinds])
    (chunk,) = chunks_of(log, 1 << 20)
    stored = transform("zstd", sealed=False).encode(0, chunk)
    assert stored.is_compressed is is_compressed
    assert (len(joined(stored)) < len(log)) is is_compressed


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_large_chunks_are_judged_by_a_sample_of_all_of_them(share: float) -> None:
    """Text that follows random bytes is found, and random bytes are given up early."""
    size = 2_000_000
    random_bytes = secrets.token_bytes(int(size * (1 - share)))
    text = TEXT * (int(size * share) // len(TEXT))
    data = random_bytes + text
    pieces = [memoryview(data)[start : start + 300_000] for start in range(0, len(data), 300_000)]
    compressed = compress(pieces, 1)
    if share:
        assert compressed is not None
        assert decompress(b"".join(compressed), len(data)) == data
    else:
        assert compressed is None
