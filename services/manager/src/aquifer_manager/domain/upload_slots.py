"""Places for uploads of one broker, and which of them make no progress (SR-18).

Two rules keep one broker from holding up the copies of all others: so many copy runs of one broker at once and no more, and a run
whose upload stands still lends its slot of the copy lane to somebody else until bytes move again.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from aquifer_core.ports import Clock

from aquifer_manager.domain.tasks import TaskKey

__all__ = ["Upload", "UploadSlots"]


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


class UploadSlots:
    """Counts copy runs by broker, and uploads that stand still."""

    def __init__(self, *, per_broker: int, stalled_after_s: float, clock: Clock) -> None:
        """Prepares.

        Args:
            per_broker: copy runs of one broker at once.
            stalled_after_s: an upload that sends nothing for this long stands still.
            clock: measures and waits.
        """
        self._per_broker = per_broker
        self._stalled_after_s = stalled_after_s
        self._clock = clock
        self._active: dict[str, int] = defaultdict(int)
        self._waiting: dict[str, dict[TaskKey, None]] = defaultdict(dict)
        self._stalled = 0
        self._on_free: Callable[[TaskKey], None] = lambda _: None
        self._on_stalled: Callable[[], None] = lambda: None

    def watch(self, *, on_free: Callable[[TaskKey], None], on_stalled: Callable[[], None]) -> None:
        """Says whom to tell: of a run that may begin now, and when an upload begins or ends to stand still."""
        self._on_free = on_free
        self._on_stalled = on_stalled

    def stalled(self) -> int:
        """Uploads that stand still."""
        return self._stalled

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

    @asynccontextmanager
    async def upload(self) -> AsyncIterator[Upload]:
        """An upload whose progress is watched while the block runs."""
        made = Upload(self._clock)
        watcher = asyncio.create_task(self._watch(made), name="upload watch")
        try:
            yield made
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
            self._mark(made, stalled=False)

    def _leave(self, address: str) -> None:
        self._active[address] -= 1
        waiting = self._waiting[address]
        if waiting:
            key = next(iter(waiting))
            del waiting[key]
            self._on_free(key)
        if not self._active[address]:
            del self._active[address]
            if not waiting:
                del self._waiting[address]

    async def _watch(self, upload: Upload) -> None:
        while True:
            left_s = self._stalled_after_s - upload.still_s()
            self._mark(upload, stalled=left_s <= 0)
            await self._clock.sleep(left_s if left_s > 0 else self._stalled_after_s / 4)

    def _mark(self, upload: Upload, *, stalled: bool) -> None:
        if stalled is not upload.stalled:
            upload.stalled = stalled
            self._stalled += 1 if stalled else -1
            self._on_stalled()
