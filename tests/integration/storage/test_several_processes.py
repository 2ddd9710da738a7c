"""What other processes do to segments that this one has in memory."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import builders
import pytest
from aquifer_core.errors import RemoteResourceNotFoundError
from aquifer_storage.adapters.file_key_ring import FileKeyRing
from aquifer_storage.adapters.filesystem import FilesystemObjectStore
from aquifer_storage.domain.options import StorageOptions
from aquifer_storage.domain.remote_storage import RemoteStorage
from contract.remote_storage_manager import copied
from fixtures.key_rings import KeyRingFiles, new_key_ring


@pytest.fixture
def ring(tmp_path: Path) -> KeyRingFiles:
    """A key ring with one key."""
    return new_key_ring(tmp_path / "keys")


@pytest.fixture
async def processes(
    tmp_path: Path, ring: KeyRingFiles
) -> AsyncIterator[tuple[RemoteStorage, RemoteStorage]]:
    """Two of them over one store."""
    both = [
        RemoteStorage(
            FilesystemObjectStore(tmp_path / "segments"),
            options=StorageOptions(),
            writer_version="1",
            key_ring=FileKeyRing(ring.path),
        )
        for _ in range(2)
    ]
    yield both[0], both[1]
    await asyncio.gather(*(each.close() for each in both))


async def test_a_description_is_what_the_store_has_now(
    processes: tuple[RemoteStorage, RemoteStorage], ring: KeyRingFiles
) -> None:
    """Scrubs take it for the truth, and keys are retired by it."""
    here, there = processes
    metadata = await copied(here, builders.segment())
    first = await here.describe_segment(metadata)
    ring.put("another")
    ring.activate("another")
    await there.rewrap_segment(metadata)
    assert first.key_id != (await here.describe_segment(metadata)).key_id == "another"
    await there.delete_log_segment_data(metadata)
    with pytest.raises(RemoteResourceNotFoundError):
        await here.describe_segment(metadata)
