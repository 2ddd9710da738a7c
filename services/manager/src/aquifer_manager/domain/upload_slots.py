"""Places for uploads of one broker, and which of them make no progress (SR-18).

Two rules keep one broker from holding up the copies of all others: so many uploads of one broker at once and no more, and a run
whose upload stands still lends its slot of the copy lane to somebody else until bytes move again. A third keeps one partition from
holding up the others of its broker: its run has one place, and further ones only as long as nobody waits for any.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from aquifer_core.ports import Clock

from aquifer_manager.domain.tasks import TaskKey

__all__ = ["Place", "Upload", "UploadSlots"]

_CALLED_FOR_S: Final = 5.0


class Upload:
    """An upload under way; counts as standing still when nothing was sent for a while."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sent_bytes = -1
        self._moved_s = clock.monotonic_s()
        self.stalled = False

    def sent(self, sent_bytes: int) -> None:
        """So many bytes were sent in all."""
        if sent_bytes > self._sent_bytes:
            self._sent_bytes = sent_bytes
            self._moved_s = self._clock.monotonic_s()

    def still_s(self) -> float:
        """For how long nothing was sent."""
        return self._clock.monotonic_s() - self._moved_s


class Place:
    """A place beside that of a run; `leave` may be called again."""

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave: Callable[[], None] | None = leave

    def leave(self) -> None:
        """Gives the place away."""
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()


class UploadSlots:
    """Counts copy runs and further uploads by broker, and uploads that stand still."""

    def __init__(self, *, per_broker: int, stalled_after_s: float, clock: Clock) -> None:
        """Prepares.

        Args:
            per_broker: copy runs and further uploads of one broker at once.
            stalled_after_s: an upload that sends nothing for this long stands still.
            clock: measures and waits.
        """
        self._per_broker = per_broker
        self._stalled_after_s = stalled_after_s
        self._clock = clock
        self._active: dict[str, int] = defaultdict(int)
        # Runs that want a place, in their order, and when they were told that one is free.
        self._waiting: dict[str, dict[TaskKey, float | None]] = defaultdict(dict)
        self._stalled = 0
        self._further = 0
        self._on_free: Callable[[TaskKey], None] = lambda _: None
        self._on_lent: Callable[[], None] = lambda: None
        self._has_room: Callable[[], bool] = lambda: True

    def watch(
        self,
        *,
        on_free: Callable[[TaskKey], None],
        on_lent: Callable[[], None],
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        """Says whom to tell and to ask.

        Args:
            on_free: told of a run that may begin now.
            on_lent: told when `lent` changes.
            has_room: whether a slot of the lane is free that no task waits for.
        """
        self._on_free = on_free
        self._on_lent = on_lent
        self._has_room = has_room

    def stalled(self) -> int:
        """Uploads that stand still."""
        return self._stalled

    def lent(self) -> int:
        """Slots of the lane that runs do not use for now, less those that they use besides their own."""
        return self._stalled - self._further

    @contextmanager
    def run_at(self, address: str, key: TaskKey) -> Iterator[bool]:
        """Takes a place for a run at a broker. False: all are taken, and `on_free` is called when one may be free."""
        if self._active[address] >= self._per_broker:
            self._waiting[address][key] = None
            yield False
            return
        self._active[address] += 1
        self._waiting[address].pop(key, None)
        try:
            yield True
        finally:
            self._leave(address)

    def further_place(self, address: str) -> Place | None:
        """A place for one more upload of a run, as long as nobody waits for one; None: there is none to spare."""
        if self._active[address] >= self._per_broker or self._is_wanted(address):
            return None
        if not self._has_room():
            return None
        self._active[address] += 1
        self._further += 1
        return Place(lambda: self._leave_further(address))

    @asynccontextmanager
    async def upload(self) -> AsyncIterator[Upload]:
        """An upload whose progress is watched while the block runs."""
        made = Upload(self._clock)
        watcher = asyncio.create_task(self._watch(made), name="upload watch")
        try:
            yield made
        finally:
            watcher.cancel()
            try:
                await asyncio.gather(watcher, return_exceptions=True)
            finally:
                self._mark(made, stalled=False)

    def _leave_further(self, address: str) -> None:
        self._further -= 1
        self._leave(address)
        self._on_lent()

    def _leave(self, address: str) -> None:
        self._active[address] -= 1
        self._drop_absent(address)
        waiting = self._waiting[address]
        key = next((key for key, called_s in waiting.items() if called_s is None), None)
        if key is not None:
            waiting[key] = self._clock.monotonic_s()
            self._on_free(key)
        if not self._active[address]:
            del self._active[address]
            if not waiting:
                del self._waiting[address]

    def _is_wanted(self, address: str) -> bool:
        """Whether a run waits for a place, or was told of one and is on its way."""
        self._drop_absent(address)
        return bool(self._waiting[address])

    def _drop_absent(self, address: str) -> None:
        """Forgets runs that did not come when they were told: the task is gone, or paused."""
        before_s = self._clock.monotonic_s() - _CALLED_FOR_S
        waiting = self._waiting[address]
        for key in [key for key, at_s in waiting.items() if at_s is not None and at_s < before_s]:
            del waiting[key]

    async def _watch(self, upload: Upload) -> None:
        while True:
            left_s = self._stalled_after_s - upload.still_s()
            self._mark(upload, stalled=left_s <= 0)
            await self._clock.sleep(left_s if left_s > 0 else self._stalled_after_s / 4)

    def _mark(self, upload: Upload, *, stalled: bool) -> None:
        if stalled is not upload.stalled:
            upload.stalled = stalled
            self._stalled += 1 if stalled else -1
            self._on_lent()
