"""Whatever a manifest says of its encryption, readers answer with an error of ours or with the right bytes."""

import asyncio
import hashlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from aquifer_core.errors import AquiferError
from aquifer_core.segment import IndexType
from aquifer_storage.adapters.file_key_ring import FileKeyRing
from aquifer_storage.adapters.filesystem import FilesystemObjectStore
from aquifer_storage.domain.manifest_codec import decode_manifest, encode_manifest
from aquifer_storage.domain.options import StorageOptions
from aquifer_storage.domain.remote_storage import RemoteStorage
from contract.remote_storage_manager import joined
from hypothesis import given, settings
from hypothesis import strategies as st

_SEALED = Path(__file__).parents[2] / "golden" / "storage" / "sealed"
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.binary(max_size=40).map(bytes.hex),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2)
    ),
    max_leaves=4,
)


def golden_manifest() -> bytes:
    """The manifest of the golden sealed segment."""
    (path,) = _SEALED.rglob("*.manifest")
    return path.read_bytes()


def read_with(manifest: bytes) -> None:
    """Read the golden segment with another manifest."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(_SEALED, folder, dirs_exist_ok=True)
        (path,) = Path(folder).rglob("*.manifest")
        path.write_bytes(manifest)
        asyncio.run(look(Path(folder)))


async def look(folder: Path) -> None:
    """Read the golden segment."""
    golden = decode_manifest(golden_manifest(), "golden")
    assert golden is not None
    storage = RemoteStorage(
        FilesystemObjectStore(folder / "store", threads=1),
        options=StorageOptions(),
        writer_version="1",
        key_ring=FileKeyRing(folder / "keys" / "ring.json"),
    )
    try:
        log = await joined(storage.fetch_log_segment(golden.metadata, 0))
        assert hashlib.sha256(log).hexdigest() == golden.log.sha256
        snapshot = await storage.fetch_index(golden.metadata, IndexType.PRODUCER_SNAPSHOT)
        assert snapshot == b"snapshot"
    except AquiferError:
        return
    finally:
        await storage.close()


def with_checksum(document: dict[str, Any]) -> bytes:
    """Encode a document with a checksum that fits."""
    document.pop("checksum", None)
    checksum = hashlib.sha256(json.dumps(document, indent=1).encode()).hexdigest()
    return json.dumps({**document, "checksum": checksum}, indent=1).encode()


@given(
    field=st.sampled_from([None, "cipher", "key_id", "wrapping", "wrapped_key", "codec"]),
    value=_JSON,
    is_removed=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_an_envelope_with_another_value_is_refused_or_understood(
    field: str | None, value: Any, is_removed: bool
) -> None:
    document = json.loads(golden_manifest())
    place = document if field is None else document["log" if field == "codec" else "encryption"]
    name = field or "encryption"
    if is_removed:
        del place[name]
    else:
        place[name] = value
    read_with(with_checksum(document))


@given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
@settings(max_examples=100)
def test_any_other_byte_in_a_manifest_is_refused(place: float, flip: int) -> None:
    data = bytearray(golden_manifest())
    data[int(place * len(data))] ^= flip
    try:
        decoded = decode_manifest(bytes(data), "key")
    except AquiferError:
        return
    # Only the name of the checksum itself may be damaged unseen: the rest is as it was then.
    golden = decode_manifest(golden_manifest(), "golden")
    assert decoded == golden


def test_a_manifest_is_encoded_as_it_was() -> None:
    manifest = decode_manifest(golden_manifest(), "golden")
    assert manifest is not None
    assert encode_manifest(manifest) == golden_manifest()
