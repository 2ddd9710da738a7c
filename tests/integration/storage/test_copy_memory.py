"""What a copy has in memory is in the upload budget."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import builders
import pytest
from aquifer_storage.adapters.file_key_ring import FileKeyRing
from aquifer_storage.domain.options import MIB, StorageOptions
from aquifer_storage.domain.remote_storage import RemoteStorage
from fixtures.hooked_object_store import HookedObjectStore
from fixtures.key_rings import new_key_ring

OPTIONS = StorageOptions(
    chunk_size_bytes=4_000, part_size_bytes=MIB, single_put_max_bytes=MIB, parallel_parts=1
)
INDEX_BYTES = 8 * MIB


@pytest.fixture
def tracing() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("tracing")
@pytest.mark.parametrize("is_sealed", [False, True], ids=["plain", "sealed"])
async def test_the_bundle_of_a_copy_is_in_the_budget_beside_its_indexes(
    objects: HookedObjectStore, tmp_path: Path, is_sealed: bool
) -> None:
    """T45: also at the moment at which the bundle is made of them."""
    ring = FileKeyRing(new_key_ring(tmp_path / "keys").path) if is_sealed else None
    storage = RemoteStorage(objects, options=OPTIONS, writer_version="1", key_ring=ring)
    begin_bytes, _ = tracemalloc.get_traced_memory()
    segment = builders.segment(producer_snapshot=bytes(INDEX_BYTES))
    seen = []

    async def look(operation: str, key: str) -> None:
        if operation == "create" and key.endswith(".indexes"):
            _, peak_bytes = tracemalloc.get_traced_memory()
            seen.append((storage.writer.budget.used_bytes, peak_bytes - begin_bytes))

    objects.before = look
    await storage.copy_log_segment_data(segment.metadata, segment.data)
    [(counted_bytes, peak_bytes)] = seen
    assert peak_bytes > 2 * INDEX_BYTES
    assert counted_bytes > peak_bytes - 2 * MIB
    await storage.close()
