"""Copies that fail, race and repeat: nothing is left behind, nothing is lost."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import builders
import pytest
from aquifer_core.errors import (
    AquiferError,
    ConcurrentUpdateError,
    RemoteResourceNotFoundError,
    RemoteStorageUnavailableError,
)
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_storage.adapters.filesystem import FilesystemObjectStore
from aquifer_storage.domain.manifest_codec import encode_abandoned
from aquifer_storage.domain.remote_storage import RemoteStorage
from contract.remote_storage_manager import copied, joined
from fixtures.hooked_object_store import COPY_OPTIONS as OPTIONS
from fixtures.hooked_object_store import Hook, HookedObjectStore


class CountingSource(builders.BytesLogSource):
    """Counts the bytes that were taken from it."""

    taken_bytes = 0

    async def chunks(self) -> AsyncIterator[bytes | memoryview]:
        async for piece in super().chunks():
            object.__setattr__(self, "taken_bytes", self.taken_bytes + len(piece))
            yield piece


@pytest.fixture
def left(tmp_path: Path) -> Callable[[], list[str]]:
    """Names every file in the store, unfinished uploads included."""
    return lambda: sorted(path.name for path in tmp_path.rglob("*") if path.is_file())


SMALL, LARGE = 15_000, 90_000
"""The indexes of a small one lie in its manifest."""


def is_only_a_mark(left: list[str]) -> bool:
    """Whether nothing is left but what keeps others from finishing a copy of the same id."""
    return [name.rpartition(".")[2] for name in left] in ([], ["manifest"])


AFTER_THE_LOG = [
    ("size_bytes", ".log"),
    ("create", ".indexes"),
    ("create", ".manifest"),
]
STEPS = [
    *[
        (SMALL, *step)
        for step in [("create", ".log"), ("size_bytes", ".log"), ("create", ".manifest")]
    ],
    *[
        (LARGE, *step)
        for step in [
            ("start_upload", ".log"),
            ("put_part", ".log"),
            ("complete", ".log"),
            *AFTER_THE_LOG,
        ]
    ],
]


@pytest.mark.parametrize("step", STEPS, ids=str)
async def test_a_copy_that_fails_at_any_step_leaves_nothing(
    storage: RemoteStorage,
    objects: HookedObjectStore,
    step: tuple[int, str, str],
    left: Callable[[], list[str]],
) -> None:
    """SR-16: a failed copy leaves nothing dangling, and after its deletion nothing at all; T16."""
    size_bytes, operation, suffix = step
    failures = 0

    async def fail(tried: str, key: str) -> None:
        nonlocal failures
        if tried == operation and key.endswith(suffix) and not failures:
            failures += 1
            raise RemoteStorageUnavailableError("no", retry_after_ms=1)

    objects.before = fail
    segment = builders.segment(size_bytes=size_bytes)
    with pytest.raises(RemoteStorageUnavailableError):
        await copied(storage, segment)
    assert failures == 1
    assert storage.writer.budget.used_bytes == 0
    assert is_only_a_mark(left())
    if left():
        with pytest.raises(ConcurrentUpdateError, match="new segment id"):
            await copied(storage, segment)
        assert is_only_a_mark(left())
    assert [stored async for stored in storage.list_stored_segments()] == []
    await storage.delete_log_segment_data(segment.metadata)
    assert left() == []
    metadata = await copied(storage, segment)
    assert await joined(storage.fetch_log_segment(metadata, 0)) == segment.log


@pytest.mark.parametrize(
    ("operation", "suffix"),
    [("put_part", ".log"), ("complete", ".log"), ("create", ".indexes"), ("create", ".manifest")],
)
async def test_a_copy_that_is_cancelled_at_any_step_leaves_nothing(
    storage: RemoteStorage,
    objects: HookedObjectStore,
    operation: str,
    suffix: str,
    left: Callable[[], list[str]],
) -> None:
    reached = asyncio.Event()

    async def hang(tried: str, key: str) -> None:
        if tried == operation and key.endswith(suffix) and not reached.is_set():
            reached.set()
            await asyncio.Event().wait()

    objects.before = hang
    segment = builders.segment(size_bytes=90_000)
    copy = asyncio.create_task(copied(storage, segment))
    await reached.wait()
    copy.cancel()
    with pytest.raises(asyncio.CancelledError):
        await copy
    assert storage.writer.budget.used_bytes == 0
    assert is_only_a_mark(left())
    await storage.delete_log_segment_data(segment.metadata)
    assert left() == []


async def test_a_source_that_fails_leaves_nothing(
    storage: RemoteStorage, objects: HookedObjectStore, left: Callable[[], list[str]]
) -> None:
    segment = builders.segment(size_bytes=90_000, piece_bytes=5_000)

    class Failing(builders.BytesLogSource):
        async def chunks(self) -> AsyncIterator[bytes | memoryview]:
            async for piece in super().chunks():
                yield piece
                if objects.count("put_part") > 2:
                    raise ConnectionResetError

    source = Failing(data=segment.log, piece_bytes=5_000)
    with pytest.raises(ConnectionResetError):
        await copied(storage, segment.with_data(log_segment=source))
    assert left() == []


async def test_when_the_store_stays_away_the_later_deletion_cleans_up(
    storage: RemoteStorage, objects: HookedObjectStore, left: Callable[[], list[str]]
) -> None:
    """T10: cleaning up is possible later too."""
    is_away = False

    async def away(operation: str, key: str) -> None:
        nonlocal is_away
        is_away = is_away or operation == "complete"
        if is_away:
            raise RemoteStorageUnavailableError("away", retry_after_ms=1)

    objects.before = away
    segment = builders.segment(size_bytes=90_000)
    with pytest.raises(RemoteStorageUnavailableError):
        await copied(storage, segment)
    is_away = False
    objects.before = HookedObjectStore(objects).before
    assert left() != []
    await storage.delete_log_segment_data(segment.metadata)
    assert left() == []


async def test_concurrent_copies_of_one_id_in_one_process_write_once(
    storage: RemoteStorage, objects: HookedObjectStore
) -> None:
    segment = builders.segment(size_bytes=90_000)
    results = await asyncio.gather(
        *(storage.copy_log_segment_data(segment.metadata, segment.data) for _ in range(5))
    )
    assert len(set(results)) == 1
    assert objects.count("complete") == 1
    assert await joined(storage.fetch_log_segment(segment.metadata, 0)) == segment.log


async def test_concurrent_copies_of_one_id_in_two_processes_both_succeed(
    storage: RemoteStorage, objects: HookedObjectStore
) -> None:
    other = RemoteStorage(objects, options=OPTIONS, writer_version="1")
    segment = builders.segment(size_bytes=90_000)
    results = await asyncio.gather(
        *(rsm.copy_log_segment_data(segment.metadata, segment.data) for rsm in (storage, other))
    )
    assert results[0] == results[1]
    assert await joined(storage.fetch_log_segment(segment.metadata, 0)) == segment.log
    await other.writer.close()


async def test_a_failed_copy_does_not_delete_what_another_process_has_finished(
    storage: RemoteStorage, objects: HookedObjectStore
) -> None:
    """Client retried on another replica while the first attempt was still failing."""
    other = RemoteStorage(objects, options=OPTIONS, writer_version="1")
    segment = builders.segment(size_bytes=90_000)
    has_raced = False

    async def race(operation: str, key: str) -> None:
        nonlocal has_raced
        if operation == "create" and key.endswith(".indexes") and not has_raced:
            has_raced = True
            await copied(other, segment)
            raise RemoteStorageUnavailableError("late", retry_after_ms=1)

    objects.before = race
    with pytest.raises(RemoteStorageUnavailableError):
        await copied(storage, segment)
    assert await joined(storage.fetch_log_segment(segment.metadata, 0)) == segment.log
    findings = [step.findings async for step in storage.verify_segment(segment.metadata)]
    assert not any(findings)
    await other.writer.close()


@pytest.mark.parametrize("is_finished", [True, False])
async def test_a_copy_leaves_the_indexes_of_another_with_other_settings_alone(
    storage: RemoteStorage, objects: HookedObjectStore, *, is_finished: bool
) -> None:
    """A client retried on a replica that cuts larger chunks already: the log is the same, its chunk table is not."""
    options = replace(OPTIONS, chunk_size_bytes=2 * OPTIONS.chunk_size_bytes)
    other = RemoteStorage(objects, options=options, writer_version="1")
    segment = builders.segment(size_bytes=LARGE)
    waits = ".indexes" if is_finished else ".manifest"
    begun: list[asyncio.Task[RemoteLogSegmentMetadata]] = []

    async def race(operation: str, key: str) -> None:
        if operation == "create" and key.endswith(waits) and not begun:
            begun.append(asyncio.create_task(copied(storage, segment)))
            await asyncio.wait(begun)

    objects.before = race
    await copied(other, segment)
    (first,) = begun
    assert (first.exception() is None) == is_finished
    assert await joined(storage.fetch_log_segment(segment.metadata, 0)) == segment.log
    findings = [step.findings async for step in storage.verify_segment(segment.metadata)]
    assert not any(findings)
    await other.writer.close()


async def test_a_copy_fails_when_another_process_is_cleaning_up_the_same_id(
    storage: RemoteStorage,
    objects: HookedObjectStore,
    left: Callable[[], list[str]],
    files: FilesystemObjectStore,
) -> None:
    """The manifest of an abandoned copy is never a segment, and blocks every later copy of that id."""
    segment = builders.segment(size_bytes=90_000)
    metadata = segment.metadata
    tip = metadata.topic_id_partition
    key = (
        f"{tip.topic}-{tip.topic_id}/{tip.partition}/"
        f"{metadata.start_offset:020d}-{metadata.segment_id.id}.manifest"
    )

    async def abandon(operation: str, tried: str) -> None:
        if operation == "create" and tried.endswith(".indexes"):
            await files.create(key, encode_abandoned("test"))

    objects.before = abandon
    for _ in range(2):
        with pytest.raises(ConcurrentUpdateError):
            await copied(storage, segment)
    with pytest.raises(RemoteResourceNotFoundError):
        await storage.describe_segment(metadata)
    assert [stored async for stored in storage.list_stored_segments()] == []
    await storage.delete_log_segment_data(metadata)
    assert left() == []


@pytest.mark.parametrize("size_bytes", [SMALL, LARGE])
async def test_a_copy_whose_log_another_process_cleans_up_does_not_succeed(
    storage: RemoteStorage,
    objects: HookedObjectStore,
    left: Callable[[], list[str]],
    size_bytes: int,
) -> None:
    """Client retried on another replica, which has copied the log when the first attempt's clean-up takes it away."""
    other = RemoteStorage(objects, options=OPTIONS, writer_version="1")
    segment = builders.segment(size_bytes=size_bytes)

    async def first_attempt_fails(operation: str, key: str) -> None:
        if operation == "create" and key.endswith(".manifest"):
            objects.before = fail
            with pytest.raises(RemoteStorageUnavailableError):
                await copied(other, segment)

    async def fail(operation: str, key: str) -> None:
        if operation == "size_bytes" and key.endswith(".log"):
            objects.before = HookedObjectStore(objects).before
            raise RemoteStorageUnavailableError("late", retry_after_ms=1)

    objects.before = first_attempt_fails
    with pytest.raises(ConcurrentUpdateError, match="new segment id"):
        await copied(storage, segment)
    assert is_only_a_mark(left())
    await other.writer.close()


async def test_no_copy_is_acknowledged_while_others_of_the_same_id_are_cleaned_up(
    files: FilesystemObjectStore,
) -> None:
    """One has cleaned up; another, which has seen its mark, is about to take the log: it would be that of the third."""
    segment = builders.segment(size_bytes=SMALL)
    hooked = [HookedObjectStore(files) for _ in range(3)]
    one, another, third = (
        RemoteStorage(each, options=OPTIONS, writer_version="1") for each in hooked
    )
    holds = [asyncio.Event(), asyncio.Event()]
    reached = [asyncio.Event(), asyncio.Event()]

    def failing(number: int) -> Hook:
        failed = False

        async def before(operation: str, key: str) -> None:
            nonlocal failed
            if operation == "create" and key.endswith(".manifest") and not failed:
                failed = True
                raise RemoteStorageUnavailableError("no", retry_after_ms=1)
            if operation == "delete" and key.endswith(".log"):
                reached[number].set()
                await holds[number].wait()

        return before

    hooked[0].before, hooked[1].before = failing(0), failing(1)
    failures = []
    for number, storage in enumerate((one, another)):
        copy = storage.copy_log_segment_data(segment.metadata, segment.data)
        failures.append(asyncio.create_task(copy))
        async with asyncio.timeout(60):
            await reached[number].wait()
    holds[0].set()
    await asyncio.wait(failures[:1])
    with pytest.raises(ConcurrentUpdateError, match="new segment id"):
        await copied(third, segment)
    holds[1].set()
    await asyncio.wait(failures)
    assert all(isinstance(each.exception(), AquiferError) for each in failures)
    for storage in (one, another, third):
        await storage.writer.close()


@pytest.mark.parametrize("size_bytes", [SMALL, LARGE])
async def test_a_deletion_by_another_process_takes_a_copy_that_ends_beside_it(
    storage: RemoteStorage,
    objects: HookedObjectStore,
    left: Callable[[], list[str]],
    size_bytes: int,
) -> None:
    """No manifest stays without its log."""
    other = RemoteStorage(objects, options=OPTIONS, writer_version="1")
    segment = builders.segment(size_bytes=size_bytes)

    async def copy_first(operation: str, key: str) -> None:
        if operation == "delete" and key.endswith(".log"):
            objects.before = HookedObjectStore(objects).before
            await copied(other, segment)

    objects.before = copy_first
    await storage.delete_log_segment_data(segment.metadata)
    assert [name for name in left() if name.endswith((".manifest", ".log"))] == []
    await other.writer.close()


@pytest.mark.parametrize("given", [(SMALL, "size_bytes", ".log"), (LARGE, "delete", ".manifest")])
async def test_a_copy_that_is_given_up_beside_a_deletion_leaves_no_manifest_without_its_log(
    storage: RemoteStorage,
    objects: HookedObjectStore,
    files: FilesystemObjectStore,
    left: Callable[[], list[str]],
    given: tuple[int, str, str],
) -> None:
    """It has written its manifest after the deletion, and then fails to look for its log or to withdraw."""
    other = RemoteStorage(files, options=OPTIONS, writer_version="1")
    segment = builders.segment(size_bytes=given[0])
    steps = [("create", ".manifest"), given[1:]]

    async def delete_then_fail(operation: str, key: str) -> None:
        if not steps or (operation, Path(key).suffix) != steps[0]:
            return
        if steps.pop(0) == given[1:]:
            raise RemoteStorageUnavailableError("no", retry_after_ms=1)
        await other.delete_log_segment_data(segment.metadata)

    objects.before = delete_then_fail
    with pytest.raises(RemoteStorageUnavailableError):
        await copied(storage, segment)
    assert not steps
    assert left() == []


async def test_a_truncated_object_is_noticed_before_the_copy_succeeds(
    storage: RemoteStorage, objects: HookedObjectStore, files: FilesystemObjectStore
) -> None:
    async def truncate(operation: str, key: str) -> None:
        if operation == "size_bytes" and key.endswith(".log"):
            await files.put(key, b"short")

    objects.before = truncate
    with pytest.raises(RemoteStorageUnavailableError, match="store has 5"):
        await copied(storage, builders.segment())


async def test_many_copies_at_once_stay_inside_the_budget(
    storage: RemoteStorage, objects: HookedObjectStore
) -> None:
    """T45: memory is flat from 1 to 64 uploads."""
    most_bytes = 0

    async def look(operation: str, key: str) -> None:
        nonlocal most_bytes
        most_bytes = max(most_bytes, storage.writer.budget.used_bytes)

    objects.before = look
    log = builders.log_bytes(60_000, start_offset=100)
    segments = [builders.segment(log) for _ in range(64)]
    await asyncio.gather(*(copied(storage, segment) for segment in segments))
    assert OPTIONS.part_size_bytes < most_bytes <= OPTIONS.upload_budget_bytes
    assert storage.writer.budget.used_bytes == 0
    assert objects.count("create", ".manifest") == 64


async def test_who_waits_for_the_budget_has_received_nothing(
    storage: RemoteStorage, objects: HookedObjectStore
) -> None:
    """T45: of many copies at once, those that wait hold no bytes of their logs."""
    reached, go = asyncio.Event(), asyncio.Event()

    async def hold(operation: str, key: str) -> None:
        if operation == "put_part":
            reached.set()
            await go.wait()

    objects.before = hold
    log = builders.log_bytes(60_000, start_offset=100)
    sources = [CountingSource(data=log, piece_bytes=1_000) for _ in range(32)]
    segments = [builders.segment(log).with_data(log_segment=source) for source in sources]
    async with asyncio.TaskGroup() as group:
        for segment in segments:
            group.create_task(copied(storage, segment))
        async with asyncio.timeout(60):
            await reached.wait()
        for _ in range(200):
            await asyncio.sleep(0)
        begun = [source.taken_bytes for source in sources if source.taken_bytes]
        assert 0 < len(begun) <= OPTIONS.upload_budget_bytes // OPTIONS.part_size_bytes
        go.set()
    assert [source.taken_bytes for source in sources] == [len(log)] * 32


async def test_deleting_waits_for_a_copy_of_the_same_id(
    storage: RemoteStorage, objects: HookedObjectStore, left: Callable[[], list[str]]
) -> None:
    reached, go = asyncio.Event(), asyncio.Event()

    async def hold(operation: str, key: str) -> None:
        if operation == "create" and key.endswith(".indexes"):
            reached.set()
            await go.wait()

    objects.before = hold
    segment = builders.segment(size_bytes=LARGE)
    async with asyncio.TaskGroup() as group:
        group.create_task(copied(storage, segment))
        await reached.wait()
        group.create_task(storage.delete_log_segment_data(segment.metadata))
        go.set()
    assert left() == []
