"""What earlier versions have stored stays readable: segments in tests/golden/storage, never written again."""

import hashlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aquifer_core.segment import IndexType
from aquifer_storage.adapters.file_key_ring import FileKeyRing
from aquifer_storage.adapters.filesystem import FilesystemObjectStore
from aquifer_storage.domain.options import StorageOptions
from aquifer_storage.domain.remote_storage import RemoteStorage
from contract.remote_storage_manager import joined

_GOLDEN = Path(__file__).parents[2] / "golden" / "storage"


@pytest.fixture
async def storage(kind: str, tmp_path: Path) -> AsyncIterator[RemoteStorage]:
    """A service over a copy of a golden store."""
    shutil.copytree(_GOLDEN / kind, tmp_path, dirs_exist_ok=True)
    storage = RemoteStorage(
        FilesystemObjectStore(tmp_path / "store"),
        options=StorageOptions(),
        writer_version="2",
        key_ring=FileKeyRing(tmp_path / "keys" / "ring.json"),
    )
    yield storage
    await storage.close()


@pytest.mark.parametrize(
    ("kind", "codec", "key_id", "chunks", "objects"),
    [
        ("plain", "none", None, 3, 3),
        ("sealed", "zstd", "a", 3, 3),
        ("plain_small", "none", None, 3, 2),
        ("sealed_small", "zstd", "a", 4, 2),
    ],
)
async def test_a_segment_of_an_earlier_version_is_readable(
    storage: RemoteStorage, codec: str, key_id: str | None, chunks: int, objects: int
) -> None:
    """The indexes of small ones lie in the manifest, which is of format version 2."""
    (stored,) = [found async for found in storage.list_stored_segments()]
    assert (stored.codec, stored.key_id, stored.chunk_count) == (codec, key_id, chunks)
    assert len(stored.object_keys) == objects
    metadata = stored.metadata
    log = await joined(storage.fetch_log_segment(metadata, 0))
    assert len(log) == metadata.segment_size_bytes == stored.original_bytes
    assert hashlib.sha256(log).hexdigest() == stored.sha256["log"]
    for offset in range(metadata.start_offset, metadata.end_offset + 1):
        assert await joined(storage.fetch_records(metadata, offset, 1))
    for index_type, part in [
        (IndexType.PRODUCER_SNAPSHOT, "producer_snapshot"),
        (IndexType.LEADER_EPOCH, "leader_epochs"),
        (IndexType.REMOTE_LOG_INDEX, "remote_log_index"),
    ]:
        data = await storage.fetch_index(metadata, index_type)
        assert hashlib.sha256(data).hexdigest() == stored.sha256[part]
    steps = [step async for step in storage.verify_segment(metadata)]
    assert not any(step.findings for step in steps)
