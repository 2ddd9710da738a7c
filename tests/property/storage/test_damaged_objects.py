"""Whatever stands in the store, readers answer with an error of ours or with the right bytes."""

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import builders
import pytest
from aquifer_core.errors import AquiferError, CorruptSegmentError
from aquifer_core.formats.remote_log_index import RemoteLogIndex
from aquifer_core.segment import IndexType, VerifyFinding
from aquifer_storage.adapters.filesystem import FilesystemObjectStore
from aquifer_storage.domain.envelope import Envelope, WrappedKey
from aquifer_storage.domain.index_bundle import build_bundle
from aquifer_storage.domain.manifest import (
    FORMAT_VERSION,
    Manifest,
    StoredLog,
    decode_manifest,
    encode_manifest,
)
from aquifer_storage.domain.options import StorageOptions
from aquifer_storage.domain.remote_storage import RemoteStorage
from aquifer_storage.domain.transform import SegmentTransform
from hypothesis import given, settings
from hypothesis import strategies as st

SEGMENT = builders.segment(size_bytes=9_000)


def manifest() -> Manifest:
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
        writer_version="1",
        encryption=Envelope(key=WrappedKey(key_id="k1", algorithm="aes-256-kw", data=b"\x00\xff")),
    )


def test_a_manifest_survives_its_encoding() -> None:
    assert decode_manifest(encode_manifest(manifest()), "key") == manifest()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(data=st.binary(max_size=50) | JSON.map(lambda value: json.dumps(value).encode()))
def test_an_arbitrary_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(AquiferError):
        decode_manifest(data, "key")


@given(choices=st.data(), value=JSON)
def test_a_manifest_with_one_other_value_is_refused_or_understood(
    choices: st.DataObject, value: Any
) -> None:
    document = json.loads(encode_manifest(manifest()))
    del document["checksum"]  # by itself it would refuse every change
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
        decoded = decode_manifest(json.dumps(document).encode(), "key")
    except AquiferError:
        return
    assert decoded is not None
    assert decode_manifest(encode_manifest(decoded), "key") == decoded


def test_a_manifest_of_a_newer_version_is_told_apart_from_a_damaged_one() -> None:
    document = json.loads(encode_manifest(manifest()))
    document["format_version"] = FORMAT_VERSION + 1
    del document["checksum"]
    with pytest.raises(AquiferError, match="format version") as raised:
        decode_manifest(json.dumps(document).encode(), "key")
    assert not isinstance(raised.value, CorruptSegmentError)


Check = Callable[[RemoteStorage, Path], Awaitable[None]]


def with_stored_segment(check: Check) -> None:
    """Copy the segment in chunks of 2000 bytes to files and look at it with a manager that has read nothing yet."""

    async def run(root: Path) -> None:
        options = StorageOptions(chunk_size_bytes=2_000)
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
)
@settings(max_examples=60, deadline=None)
def test_damage_is_never_served_and_always_found(
    suffix: str, place: float, flip: int, cut: bool
) -> None:
    """A corrupt object byte is DATA_LOSS to readers and a finding to the scrubber."""

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

    with_stored_segment(check)


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
