"""Whatever stands in the store, readers answer with an error of ours or with the right bytes."""

import asyncio
import hashlib
import itertools
import json
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import builders
import pytest
from aquifer_core.errors import AquiferError, CorruptSegmentError
from aquifer_core.formats.remote_data_id import RemoteDataId
from aquifer_core.formats.remote_log_index import RemoteLogIndex, RemoteLogIndexEntry
from aquifer_core.ids import KafkaUuid
from aquifer_core.segment import IndexType, RemoteLogSegmentMetadata, VerifyFinding
from aquifer_storage.adapters.filesystem import FilesystemObjectStore
from aquifer_storage.domain.custom_metadata import RemoteLogIndexLocation
from aquifer_storage.domain.envelope import Envelope, WrappedKey
from aquifer_storage.domain.index_bundle import build_bundle
from aquifer_storage.domain.manifest import BundlePart, Manifest, PartLocation, StoredLog
from aquifer_storage.domain.manifest_codec import (
    FORMAT_VERSION,
    decode_manifest,
    encode_manifest,
)
from aquifer_storage.domain.options import StorageOptions
from aquifer_storage.domain.remote_storage import RemoteStorage
from aquifer_storage.domain.transform import SegmentTransform
from hypothesis import given, settings
from hypothesis import strategies as st

SEGMENT = builders.segment(size_bytes=9_000)


def manifest(*, has_bundle: bool = False) -> Manifest:
    """A manifest with everything in it."""
    metadata = replace(SEGMENT.metadata, custom_metadata=b"\x00\xff")
    transform = SegmentTransform(segment_id=metadata.segment_id.id)
    bundle = build_bundle(metadata, SEGMENT.data, RemoteLogIndex([]), transform)
    log = StoredLog(
        original_bytes=9_000, stored_bytes=9_000, sha256="0" * 64, chunk_count=3, codec="none"
    )
    return Manifest(
        metadata=metadata,
        log=log,
        parts=bundle.parts,
        bundle=bundle.data if has_bundle else None,
        writer_version="1",
        encryption=Envelope(key=WrappedKey(key_id="k1", algorithm="aes-256-kw", data=b"\x00\xff")),
    )


@pytest.mark.parametrize("has_bundle", [False, True])
def test_a_manifest_survives_its_encoding(has_bundle: bool) -> None:
    encoded = encode_manifest(manifest(has_bundle=has_bundle))
    assert decode_manifest(encoded, "key") == manifest(has_bundle=has_bundle)
    assert json.loads(encoded)["format_version"] == 1 + has_bundle, "no newer than it needs"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


ODD_NUMBERS = st.sampled_from([-1, 0, 1, 2_000, 9_001, (1 << 31) - 1, 1 << 31, (1 << 63) - 1])
INT32, INT64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
LOCATIONS = st.integers(0, 3_000) | st.just((1 << 31) - 1)
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "first_offset": st.integers(90, 400) | INT64,
        "last_offset": st.integers(90, 400) | INT64,
        "first_timestamp_ms": INT64,
        "last_timestamp_ms": INT64,
        "data_length_bytes": st.integers(0, 10_000) | INT32,
        "position": st.integers(0, 10_000) | INT64,
        "stored_length_bytes": st.integers(0, 10_000) | INT32,
        "crc32c": st.integers(0, (1 << 32) - 1),
        "is_compressed": st.booleans(),
        "is_encrypted": st.booleans(),
        "segment_id": st.just(KafkaUuid(b"x" * 16)),
    },
)
"""What is different in an entry of the chunk table."""
BUNDLE_MAX_BYTES = st.sampled_from([0, 1 << 16])
"""Index bundles in an object of their own, and in the manifest."""


@given(data=st.binary(max_size=50) | JSON.map(lambda value: json.dumps(value).encode()))
def test_an_arbitrary_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(AquiferError):
        decode_manifest(data, "key")


@given(choices=st.data(), value=JSON, has_bundle=st.booleans())
def test_a_manifest_with_one_other_value_is_refused_or_understood(
    choices: st.DataObject, value: Any, has_bundle: bool
) -> None:
    document = json.loads(encode_manifest(manifest(has_bundle=has_bundle)))
    place = document
    while True:
        name = choices.draw(st.sampled_from(sorted(place)))
        if not isinstance(place[name], dict) or choices.draw(st.booleans()):
            break
        place = place[name]
    if choices.draw(st.booleans()):
        place[name] = value
    else:
        del place[name]
    try:
        decoded = decode_manifest(vouched_for(document), "key")
    except AquiferError:
        return
    assert decoded is not None
    assert decode_manifest(encode_manifest(decoded), "key") == decoded


@given(choices=st.data(), value=JSON, bundle_max_bytes=BUNDLE_MAX_BYTES)
@settings(max_examples=60, deadline=None)
def test_a_segment_whose_manifest_says_something_else_is_read_right_or_not_at_all(
    choices: st.DataObject, value: Any, bundle_max_bytes: int
) -> None:
    """Well-formed, but contradicting what is stored: positions, sizes, checksums, offsets, epochs."""

    async def check(rsm: RemoteStorage, root: Path) -> None:
        change_manifest(root, choices, value)
        await look_at_everything(rsm)

    with_stored_segment(check, bundle_max_bytes)


@given(
    entries=st.lists(ENTRIES, max_size=4),
    kept=st.integers(0, 5),
    bundle_max_bytes=BUNDLE_MAX_BYTES,
)
@settings(max_examples=60, deadline=None)
def test_a_chunk_table_that_says_something_else_is_believed_of_no_chunk(
    entries: list[dict[str, Any]], kept: int, bundle_max_bytes: int
) -> None:
    """Every checksum of the bundle holds, and some of its entries are wrong."""

    async def check(rsm: RemoteStorage, root: Path) -> None:
        replace_table(root, entries, kept)
        await look_at_everything(rsm)

    with_stored_segment(check, bundle_max_bytes)


@given(custom=st.builds(RemoteLogIndexLocation, position=LOCATIONS, size_bytes=LOCATIONS))
@settings(max_examples=30, deadline=None)
def test_custom_metadata_that_points_elsewhere_does_no_harm(custom: RemoteLogIndexLocation) -> None:
    metadata = replace(SEGMENT.metadata, custom_metadata=custom.encode())

    async def check(rsm: RemoteStorage, root: Path) -> None:
        await look_at_everything(rsm, metadata)

    with_stored_segment(check)


def test_a_manifest_of_a_newer_version_is_told_apart_from_a_damaged_one() -> None:
    document = json.loads(encode_manifest(manifest()))
    document["format_version"] = FORMAT_VERSION + 1
    del document["checksum"]
    with pytest.raises(AquiferError, match="format version") as raised:
        decode_manifest(json.dumps(document).encode(), "key")
    assert not isinstance(raised.value, CorruptSegmentError)


Check = Callable[[RemoteStorage, Path], Awaitable[None]]


def with_stored_segment(check: Check, bundle_max_bytes: int = 0) -> None:
    """Copy the segment in chunks of 2000 bytes to files and look at it with a manager that has read nothing yet."""

    async def run(root: Path) -> None:
        options = StorageOptions(chunk_size_bytes=2_000, manifest_bundle_max_bytes=bundle_max_bytes)
        writer = RemoteStorage(
            FilesystemObjectStore(root, threads=1), options=options, writer_version="1"
        )
        await writer.copy_log_segment_data(SEGMENT.metadata, SEGMENT.data)
        await writer.close()
        reader = RemoteStorage(
            FilesystemObjectStore(root, threads=1), options=options, writer_version="1"
        )
        try:
            await check(reader, root)
        finally:
            await reader.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))


def damage(root: Path, suffix: str, place: float, flip: int, cut: bool) -> None:
    """Change or cut an object."""
    (path,) = root.rglob(f"*{suffix}")
    data = bytearray(path.read_bytes())
    position = int(place * len(data))
    if cut:
        del data[position:]
    else:
        data[position] ^= flip
    path.write_bytes(data)


@given(
    suffix=st.sampled_from([".log", ".indexes", ".manifest"]),
    place=st.floats(0, 1, exclude_max=True),
    flip=st.integers(1, 255),
    cut=st.booleans(),
    bundle_max_bytes=BUNDLE_MAX_BYTES,
)
@settings(max_examples=60, deadline=None)
def test_damage_is_never_served_and_always_found(
    suffix: str, place: float, flip: int, cut: bool, bundle_max_bytes: int
) -> None:
    """A corrupt object byte is DATA_LOSS to readers and a finding to the scrubber."""
    if suffix == ".indexes":
        bundle_max_bytes = 0

    async def check(rsm: RemoteStorage, root: Path) -> None:
        damage(root, suffix, place, flip, cut)
        try:
            found = [bytes(piece) async for piece in rsm.fetch_log_segment(SEGMENT.metadata, 0)]
            assert b"".join(found) == SEGMENT.log
        except AquiferError:
            pass
        for index_type in IndexType:
            await look_at_index(rsm, index_type)
        findings: list[VerifyFinding] = []
        try:
            async for progress in rsm.verify_segment(SEGMENT.metadata):
                findings += progress.findings
        except AquiferError:
            assert suffix == ".manifest"
        else:
            assert findings

    with_stored_segment(check, bundle_max_bytes)


@pytest.mark.parametrize("has_bundle", [False, True])
def test_a_manifest_whose_checksum_is_damaged_is_not_taken_for_one_from_before_checksums(
    has_bundle: bool,
) -> None:
    encoded = encode_manifest(manifest(has_bundle=has_bundle))
    for position in range(encoded.index(b'"checksum"'), len(encoded) - 2):
        damaged = bytearray(encoded)
        damaged[position] ^= 1
        with pytest.raises(CorruptSegmentError):
            decode_manifest(bytes(damaged), "key")


def change_manifest(root: Path, choices: st.DataObject, value: Any) -> None:
    """Change one value in a manifest whose checksum fits again then."""
    (path,) = root.rglob("*.manifest")
    document = json.loads(path.read_bytes())
    place = document
    while isinstance(place[name := choices.draw(st.sampled_from(sorted(place)))], dict):
        place = place[name]
    place[name] = choices.draw(st.just(value) | ODD_NUMBERS)
    path.write_bytes(vouched_for(document))


def vouched_for(document: dict[str, Any]) -> bytes:
    """A manifest with its checksum, which would by itself refuse every change, unless the checksum is what was changed."""
    document = {name: value for name, value in document.items() if name != "checksum"}
    digest = hashlib.sha256(json.dumps(document, indent=1).encode()).hexdigest()
    return json.dumps({**document, "checksum": digest}, indent=1).encode()


def changed(entry: RemoteLogIndexEntry, change: dict[str, Any]) -> RemoteLogIndexEntry:
    """An entry with other values, in its remote data identifier too."""
    names = {each.name for each in fields(RemoteDataId)}
    data_id = replace(entry.data_id, **{name: change[name] for name in change.keys() & names})
    others = {name: change[name] for name in change.keys() - names}
    return replace(entry, data_id=data_id, **others)


def replace_table(root: Path, changes: list[dict[str, Any]], kept: int) -> None:
    """Change entries of the chunk table, from the first on, and keep only some; the manifest vouches for the result."""
    (path,), indexes = root.rglob("*.manifest"), list(root.rglob("*.indexes"))
    manifest = decode_manifest(path.read_bytes(), "key")
    assert manifest is not None
    bundle, parts, data = manifest.bundle or indexes[0].read_bytes(), {}, b""
    for part, location in manifest.parts.items():
        content = bundle[location.position : location.position + location.size_bytes]
        if part is BundlePart.REMOTE_LOG_INDEX:
            entries = RemoteLogIndex.parse(content).entries
            pairs = itertools.zip_longest(entries, changes[: len(entries)], fillvalue={})
            content = b"".join(changed(*pair).encode() for pair in list(pairs)[:kept])
        digest = hashlib.sha256(content).hexdigest()
        parts[part] = PartLocation(position=len(data), size_bytes=len(content), sha256=digest)
        data += content
    if indexes:
        indexes[0].write_bytes(data)
    new_bundle = None if indexes else data
    path.write_bytes(encode_manifest(replace(manifest, parts=parts, bundle=new_bundle)))


async def look_at_everything(
    rsm: RemoteStorage, metadata: RemoteLogSegmentMetadata = SEGMENT.metadata
) -> None:
    """Whatever is asked is answered with the right bytes, or with an error of ours."""
    with suppress(AquiferError):
        pieces = [bytes(piece) async for piece in rsm.fetch_log_segment(metadata, 0)]
        assert b"".join(pieces) in SEGMENT.log
    for offset in (100, SEGMENT.metadata.end_offset // 2 + 50, SEGMENT.metadata.end_offset):
        with suppress(AquiferError):
            pieces = [bytes(piece) async for piece in rsm.fetch_records(metadata, offset, 3_000)]
            assert b"".join(pieces) in SEGMENT.log
    for index_type in IndexType:
        await look_at_index(rsm, index_type)
    with suppress(AquiferError):
        await rsm.describe_segment(metadata)
    with suppress(AquiferError):
        assert [step async for step in rsm.verify_segment(metadata)]
    with suppress(AquiferError):
        assert len([found async for found in rsm.list_stored_segments()]) <= 1


async def look_at_index(rsm: RemoteStorage, index_type: IndexType) -> None:
    """An index is what was copied, or an error."""
    expected = {
        IndexType.OFFSET: SEGMENT.data.offset_index,
        IndexType.TIMESTAMP: SEGMENT.data.time_index,
        IndexType.LEADER_EPOCH: SEGMENT.data.leader_epochs,
        IndexType.PRODUCER_SNAPSHOT: SEGMENT.data.producer_snapshot,
    }
    try:
        found = await rsm.fetch_index(SEGMENT.metadata, index_type)
    except AquiferError:
        return
    assert found == expected.get(index_type, found)
