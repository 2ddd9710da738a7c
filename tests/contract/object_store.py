"""What every object store of the storage service does; run it against a store to learn whether that store will do."""

import asyncio
from contextlib import aclosing

import pytest
from aquifer_core.errors import ConcurrentUpdateError, RemoteResourceNotFoundError
from aquifer_storage.domain.ports import ObjectStore

MIB = 1 << 20


class ObjectStoreContract:
    """Derive from it and give a fixture `objects`: an empty store that was checked."""

    async def test_an_object_reads_back_whole_and_in_ranges(self, objects: ObjectStore) -> None:
        data = bytes(range(256)) * 10
        await objects.put("a/b", memoryview(data))
        assert await objects.get("a/b") == data
        assert await objects.get("a/b", 5, 10) == data[5:15]
        assert await objects.get("a/b", 2_000) == data[2_000:]
        assert await objects.get("a/b", 5, 0) == b""
        assert await objects.size_bytes("a/b") == len(data)

    async def test_a_range_past_the_end_comes_short(self, objects: ObjectStore) -> None:
        await objects.put("a", b"0123456789")
        assert await objects.get("a", 8, 10) == b"89"
        assert await objects.get("a", 10, 10) == b""
        assert await objects.get("a", 50, 10) == b""

    async def test_adjacent_ranges_come_one_by_one(self, objects: ObjectStore) -> None:
        await objects.put("a", b"0123456789")
        found = [data async for data in objects.read("a", 1, [2, 3, 1])]
        assert found == [b"12", b"345", b"6"]
        assert [data async for data in objects.read("a", 7, [2, 3])] == [b"78", b"9"]
        assert [data async for data in objects.read("a", 9, [2, 3])] == [b"9", b""]
        assert [data async for data in objects.read("a", 50, [2, 3])] == [b"", b""]

    async def test_a_read_may_be_given_up(self, objects: ObjectStore) -> None:
        await objects.put("a", bytes(4 * MIB))
        for _ in range(40):
            async with aclosing(objects.read("a", 0, [MIB] * 4)) as ranges:
                assert len(await anext(ranges)) == MIB
        assert await objects.size_bytes("a") == 4 * MIB

    async def test_putting_replaces(self, objects: ObjectStore) -> None:
        await objects.put("a", b"one")
        await objects.put("a", b"three")
        assert await objects.get("a") == b"three"

    async def test_an_object_may_be_empty(self, objects: ObjectStore) -> None:
        await objects.put("a", b"")
        assert await objects.get("a") == b""
        assert await objects.size_bytes("a") == 0

    async def test_creating_does_not_replace(self, objects: ObjectStore) -> None:
        assert await objects.create("a", b"one")
        assert not await objects.create("a", b"two")
        assert await objects.get("a") == b"one"

    async def test_only_what_was_found_is_replaced(self, objects: ObjectStore) -> None:
        assert not await objects.replace("a/key", b"new", found=b"old")
        await objects.put("a/key", b"old")
        assert await objects.replace("a/key", b"new", found=b"old")
        assert await objects.get("a/key") == b"new"
        assert not await objects.replace("a/key", b"newer", found=b"old")
        await objects.delete(["a/key"])
        assert not await objects.replace("a/key", b"newer", found=b"new")
        assert await objects.size_bytes("a/key") is None

    async def test_only_one_of_many_creates(self, objects: ObjectStore) -> None:
        results = await asyncio.gather(
            *(objects.create("a", str(number).encode()) for number in range(8))
        )
        won = list(map(bool, results))
        assert sum(won) == 1
        assert await objects.get("a") == str(won.index(True)).encode()

    async def test_what_is_not_there_is_told_as_not_found(self, objects: ObjectStore) -> None:
        with pytest.raises(RemoteResourceNotFoundError):
            await objects.get("missing")
        with pytest.raises(RemoteResourceNotFoundError):
            await objects.get("missing", 5, 5)
        with pytest.raises(RemoteResourceNotFoundError):
            [data async for data in objects.read("missing", 0, [1])]
        assert await objects.size_bytes("missing") is None

    async def test_parts_make_an_object_in_the_order_of_their_numbers(
        self, objects: ObjectStore
    ) -> None:
        parts = [bytes([number]) * (5 * MIB) for number in range(3)] + [b"end"]
        upload = await objects.start_upload("a/parts", 5 * MIB)
        async with asyncio.TaskGroup() as group:
            for number, part in reversed(list(enumerate(parts, start=1))):
                group.create_task(upload.put_part(number, memoryview(part)))
        assert await objects.size_bytes("a/parts") is None
        await upload.complete()
        assert await objects.get("a/parts") == b"".join(parts)
        assert await objects.abort_uploads("a/parts") == 0

    async def test_an_upload_does_not_replace_and_is_told_that_there_is_an_object(
        self, objects: ObjectStore
    ) -> None:
        upload = await objects.start_upload("k/1", 5 * MIB)
        await upload.put_part(1, b"1" * 10)
        assert await upload.complete()
        late = await objects.start_upload("k/1", 5 * MIB)
        await late.put_part(1, b"2" * 10)
        assert not await late.complete()
        await late.abort()
        assert await objects.get("k/1") == b"1" * 10

    async def test_an_aborted_upload_leaves_nothing(self, objects: ObjectStore) -> None:
        upload = await objects.start_upload("a", 5 * MIB)
        await upload.put_part(1, bytes(5 * MIB))
        await upload.abort()
        await upload.abort()
        assert await objects.size_bytes("a") is None
        assert await objects.abort_uploads("a") == 0

    async def test_uploads_that_nobody_goes_on_with_can_be_aborted(
        self, objects: ObjectStore
    ) -> None:
        for _ in range(2):
            upload = await objects.start_upload("a.log", 5 * MIB)
            await upload.put_part(1, bytes(5 * MIB))
        await objects.start_upload("a.log2", 5 * MIB)
        assert await objects.abort_uploads("a.log") == 2
        assert await objects.abort_uploads("a.log") == 0
        assert await objects.abort_uploads("a.log2") == 1

    async def test_an_upload_that_was_aborted_elsewhere_fails_as_such(
        self, objects: ObjectStore
    ) -> None:
        """A deletion or a sweep came in between; nothing is said to be missing."""
        upload = await objects.start_upload("a/b", 5 * MIB)
        await upload.put_part(1, bytes(5 * MIB))
        await objects.abort_uploads("a/b")
        with pytest.raises(ConcurrentUpdateError):
            await upload.put_part(2, b"2")
        with pytest.raises(ConcurrentUpdateError):
            await upload.complete()
        assert await objects.size_bytes("a/b") is None
        await upload.abort()

    async def test_deleting_twice_is_harmless(self, objects: ObjectStore) -> None:
        """T22: no store needs to know batch deletion."""
        await objects.put("a/b/c", b"1")
        await objects.put("a/b/d", b"2")
        await objects.delete(["a/b/c", "missing"])
        await objects.delete(["a/b/c"])
        assert [found.key async for found in objects.list_objects("")] == ["a/b/d"]

    async def test_a_listing_is_in_the_order_of_keys(self, objects: ObjectStore) -> None:
        keys = ["b/2", "a/1/x.log", "a/1/x.indexes", "a/10/y", "c", "a/2/z"]
        for number, key in enumerate(keys):
            await objects.put(key, bytes(number))
        listed = [(found.key, found.size_bytes) async for found in objects.list_objects("")]
        assert listed == sorted((key, number) for number, key in enumerate(keys))
        under = [found.key async for found in objects.list_objects("a/1")]
        assert under == ["a/1/x.indexes", "a/1/x.log", "a/10/y"]
        assert [found async for found in objects.list_objects("nothing/")] == []

    async def test_checking_succeeds_again_and_again(self, objects: ObjectStore) -> None:
        await objects.check()
        await objects.check()
