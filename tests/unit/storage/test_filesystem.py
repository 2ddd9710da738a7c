"""Objects in files: what was written stays through a power cut, and writes next to deletions succeed."""

from pathlib import Path
from typing import Any

import pytest
from aquifer_core.errors import RemoteStorageUnavailableError
from aquifer_storage.adapters.filesystem import FilesystemObjectStore
from fixtures.power_cut import PowerCut


async def test_what_was_written_is_there_and_what_was_deleted_is_gone_after_a_power_cut(
    tmp_path: Path,
) -> None:
    """Directories are new as well, and a broker deletes what storage has acknowledged."""
    root = tmp_path / "store"
    with PowerCut() as cut:
        store = FilesystemObjectStore(root)
        await store.check()
        await store.create("topic/0/one.log", b"123")
        await store.put("topic/0/one.manifest", b"4")
        upload = await store.start_upload("other/1/two.log", 3)
        await upload.put_part(1, b"567")
        assert await upload.complete()
        await store.put("topic/1/three.log", b"8")
        await store.delete(["topic/0/one.manifest"])
        after = FilesystemObjectStore(cut.leave(root, tmp_path / "left"))
    assert await after.get("topic/0/one.log") == b"123"
    assert await after.get("other/1/two.log") == b"567"
    assert await after.get("topic/1/three.log") == b"8"
    assert await after.size_bytes("topic/0/one.manifest") is None
    await store.close()
    await after.close()


async def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """A link to a volume that is not mounted, for example."""
    (tmp_path / "topic").symlink_to(tmp_path / "unmounted")
    store = FilesystemObjectStore(tmp_path)
    with pytest.raises(RemoteStorageUnavailableError, match="topic/0"):
        await store.create("topic/0/one.log", b"1")
    await store.close()


@pytest.mark.parametrize("error", [FileExistsError, FileNotFoundError])
async def test_an_object_is_written_while_deletions_take_its_directory_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    """What `mkdir` raises when a directory goes while it looks at it, or the one above."""
    store = FilesystemObjectStore(tmp_path)
    await store.check()
    make, directory, failures = Path.mkdir, tmp_path / "topic" / "0", [error("gone")] * 3

    def mkdir(path: Path, *args: Any, **options: Any) -> None:
        if path == directory and failures:
            raise failures.pop()
        make(path, *args, **options)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    assert await store.create("topic/0/one.log", b"1")
    assert not failures
    assert await store.get("topic/0/one.log") == b"1"
    await store.close()
