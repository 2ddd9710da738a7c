"""Writes the `.log` object: one request when it is small, else parts in parallel from one budget."""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self

from aquifer_core.errors import AquiferError, ConcurrentUpdateError
from aquifer_core.formats.checksum import Buffer

from aquifer_storage.domain.options import StorageOptions
from aquifer_storage.domain.part_budget import PartBudget, PartBuffer
from aquifer_storage.domain.ports import ObjectStore, ObjectUpload, Written
from aquifer_storage.domain.stored_bytes import is_stored

# The tag of the last sealed chunk, which no two copies share.
_END_BYTES: Final = 16


class OvertakenError(ConcurrentUpdateError):
    """Another copy of the same segment has written the object."""


class LogUpload:
    """The upload of one object whose bytes come in order.

    Use it as an async context manager: leaving it with an error waits for the parts under way, gives every buffer back and forgets
    what was uploaded. `is_visible` then tells whether the object may exist, `is_confirmed` whether the store has confirmed its bytes.
    """

    def __init__(
        self,
        objects: ObjectStore,
        key: str,
        max_size_bytes: int,
        budget: PartBudget,
        options: StorageOptions,
        *,
        replaces: bool = True,
        is_copied: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """Prepares.

        Args:
            objects: the store.
            key: of the object.
            max_size_bytes: the most that may come.
            budget: of all uploads.
            options: sizes of requests.
            replaces: whether an object of the same size, left by a copy before, has the same bytes.
            is_copied: says whether such a copy was finished; asked only when there is an object. None: it was not.
        """
        self._objects = objects
        self._key = key
        self._budget = budget
        self._options = options
        self._replaces = replaces
        self._is_copied = is_copied
        self._end = b""
        self.is_single = max_size_bytes <= options.single_put_max_bytes
        self._buffer_bytes = max_size_bytes if self.is_single else options.part_size_bytes
        self._buffer: PartBuffer | None = None
        self._upload: ObjectUpload | None = None
        self._parts = 0
        self._slots = asyncio.Semaphore(options.parallel_parts)
        self._tasks = asyncio.TaskGroup()
        self.stored_bytes = 0
        self.is_visible = False
        self.is_confirmed = False

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._tasks.__aexit__(kind, error, traceback)
        except BaseExceptionGroup as group:
            raise _first(group) from group
        finally:
            if self._buffer is not None:
                self._budget.release(self._buffer)
                self._buffer = None

    async def make_room(self) -> None:
        """Have a buffer that is not full; waits while the budget is spent or too many parts are under way.

        Whoever asks for it before bytes are received keeps none while others have their turn.
        """
        if self._buffer is not None and self._buffer.is_full:
            await self._send_part()
        if self._buffer is None:
            self._buffer = await self._budget.acquire(self._buffer_bytes)

    async def append(self, pieces: list[Buffer]) -> None:
        """Add bytes, piece by piece taken out of the list; waits as `make_room` does."""
        pieces.reverse()
        while pieces:
            rest = memoryview(pieces.pop())
            while rest:
                await self.make_room()
                taken = self._fill(rest)
                self._end = (self._end + bytes(rest[:taken][-_END_BYTES:]))[-_END_BYTES:]
                self.stored_bytes += taken
                rest = rest[taken:]

    async def complete(self, sha256: str | None = None) -> None:
        """Send the rest and make the object visible.

        Args:
            sha256: hex SHA-256 of all bytes, where it is known.

        Raises:
            OvertakenError: another copy was finished, or has made an object that is stored otherwise.
        """
        if self._upload is not None:
            if self._buffer is not None and self._buffer.filled_bytes:
                await self._send_part()
            for _ in range(self._options.parallel_parts):
                await self._slots.acquire()
        self.is_visible = True
        if not await self._make_visible(sha256) and not await self._stands():
            self.is_visible = False
            raise OvertakenError(f"another copy has written {self._key}")

    async def abort(self) -> None:
        """Forget the parts. Call it after the context was left."""
        if self._upload is not None:
            await self._upload.abort()

    def _fill(self, data: memoryview) -> int:
        # Nobody else may keep a buffer: its memory is the next one's as soon as it is sent.
        return 0 if self._buffer is None else self._buffer.fill(data)

    async def _make_visible(self, sha256: str | None) -> bool:
        if self._upload is not None:
            return await self._upload.complete()
        data = self._buffer.data if self._buffer else b""
        written = await self._objects.create(self._key, data, sha256=sha256)
        self.is_confirmed = written is Written.CONFIRMED
        return bool(written)

    async def _stands(self) -> bool:
        """Whether the object that is there may stand for this upload: its own, whose answer was lost, or one with the same bytes.

        Copies of a log that are stored otherwise, with another compression or sealed, have another size or other bytes. Whoever
        wrote over one of these would spoil it: its copy may be about to be finished. After parts the end tells, since the store has
        confirmed each; a whole object is compared, or written again where that is safe, since nothing was confirmed.
        """
        if self._is_copied is not None and await self._is_copied():
            return False
        if await self._objects.size_bytes(self._key) != self.stored_bytes:
            return False
        if self._upload is not None or self._buffer is None:
            position = self.stored_bytes - len(self._end)
            return await self._objects.get(self._key, position, len(self._end)) == self._end
        if not self._replaces:
            return await is_stored(self._objects, self._key, self._buffer.data)
        written = await self._objects.put(self._key, self._buffer.data)
        self.is_confirmed = written is Written.CONFIRMED
        return True

    async def _send_part(self) -> None:
        """Begin to send the full buffer, when a slot is free."""
        if self._upload is None:
            self._upload = await self._objects.start_upload(self._key, self._buffer_bytes)
        await self._slots.acquire()
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            self._parts += 1
            part = self._tasks.create_task(self._upload.put_part(self._parts, buffer.data))
            # A task that is cancelled before it began runs none of its own clean-up.
            part.add_done_callback(lambda _: self._sent(buffer))

    def _sent(self, buffer: PartBuffer) -> None:
        self._budget.release(buffer)
        self._slots.release()


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that says most: ours before others, and never a group."""
    flat = [
        _first(error) if isinstance(error, BaseExceptionGroup) else error
        for error in group.exceptions
    ]
    ours = [error for error in flat if isinstance(error, AquiferError)]
    return (ours or flat)[0]
