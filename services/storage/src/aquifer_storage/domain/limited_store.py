"""An object store as one kind of work sees it: behind that work's limits."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from aquifer_core.formats.checksum import Buffer

from aquifer_storage.domain.ports import ObjectInfo, ObjectStore, ObjectUpload, Written
from aquifer_storage.domain.work_limits import Work, WorkGate, WorkLimits


class LimitedObjectStore:
    """Another store behind limits; implements `domain.ports.ObjectStore`. Deletions count as such, whatever they are made for."""

    def __init__(self, objects: ObjectStore, limits: WorkLimits, work: Work) -> None:
        self._objects = objects
        self._gate = limits.of(work)
        self._deletions = limits.of(Work.DELETE)

    async def put(self, key: str, data: Buffer) -> Written:
        """Write an object, replacing what was there."""
        async with self._gate.request():
            await self._gate.pay(len(data))
            return await self._objects.put(key, data)

    async def create(self, key: str, data: Buffer, *, sha256: str | None = None) -> Written:
        """Write an object unless there is one."""
        async with self._gate.request():
            await self._gate.pay(len(data))
            return await self._objects.create(key, data, sha256=sha256)

    async def replace(self, key: str, data: Buffer, *, found: bytes) -> Written:
        """Write an object in place of the one that was found."""
        async with self._gate.request():
            await self._gate.pay(len(data))
            return await self._objects.replace(key, data, found=found)

    async def start_upload(self, key: str, part_size_bytes: int) -> ObjectUpload:
        """Begin an object of many parts."""
        async with self._gate.request():
            upload = await self._objects.start_upload(key, part_size_bytes)
        return _LimitedUpload(upload, self._gate)

    async def abort_uploads(self, key: str) -> int:
        """Forget every unfinished upload of a key."""
        async with self._deletions.request():
            return await self._objects.abort_uploads(key)

    async def get(self, key: str, position: int = 0, length_bytes: int | None = None) -> bytes:
        """Read a range of an object."""
        async with self._gate.request():
            await self._gate.pay(length_bytes or 0)
            data = await self._objects.get(key, position, length_bytes)
            if length_bytes is None:
                await self._gate.pay(len(data))
        return data

    async def read(
        self, key: str, position: int, lengths_bytes: Sequence[int]
    ) -> AsyncGenerator[bytes, None]:
        """Read adjacent ranges with one place: whoever gave it back between them would wait for those who wait for its connection."""
        async with (
            self._gate.request(),
            aclosing(self._objects.read(key, position, lengths_bytes)) as pieces,
        ):
            # Paid first: what is received by those who give up before their turn would leave nothing for anybody.
            for length_bytes in lengths_bytes:
                await self._gate.pay(length_bytes)
                data = await anext(pieces, None)
                if data is None:
                    return
                yield data

    async def size_bytes(self, key: str) -> int | None:
        """Size of an object; none when there is none."""
        async with self._gate.request():
            return await self._objects.size_bytes(key)

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, in this order."""
        async with self._deletions.request():
            await self._objects.delete(keys)

    async def list_objects(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Objects whose keys begin with a prefix, in the order of their keys."""
        async for found in self._objects.list_objects(prefix):
            yield found

    async def check(self) -> None:
        """Return when the store can be used; never waits for other work."""
        await self._objects.check()

    async def close(self) -> None:
        """Release everything."""
        await self._objects.close()


class _LimitedUpload:
    """An upload behind limits; implements `domain.ports.ObjectUpload`."""

    def __init__(self, upload: ObjectUpload, gate: WorkGate) -> None:
        self._upload = upload
        self._gate = gate

    async def put_part(self, number: int, data: Buffer) -> None:
        """Write a part."""
        async with self._gate.request():
            await self._gate.pay(len(data))
            await self._upload.put_part(number, data)

    async def complete(self) -> bool:
        """Make the object visible unless there is one."""
        async with self._gate.request():
            return await self._upload.complete()

    async def abort(self) -> None:
        """Forget every part; never waits, since it makes room."""
        await self._upload.abort()
