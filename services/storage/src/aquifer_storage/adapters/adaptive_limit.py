"""How many requests of one kind a store is given at once: fewer when it refuses, one more at a time when it takes them (AIMD)."""

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

import structlog
from aquifer_core.errors import AquiferError, RemoteStorageUnavailableError
from aquifer_core.ports import Clock
from aquifer_rpc import semconv
from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from aquifer_storage.adapters.s3_errors import RefusedByStoreError
from aquifer_storage.domain.task_owner import TaskOwner

logger = structlog.get_logger(__name__)

_DECREASE: Final = 0.5
_LOWEST: Final = 1 / 16
_SPACING_S: Final = 0.1
_RETRY_AFTER_MS: Final = 1_000

_LIMITS: Final["weakref.WeakSet[AdaptiveLimit]"] = weakref.WeakSet()


def _observe(_options: CallbackOptions) -> Iterable[Observation]:
    return [
        Observation(
            limit.value,
            {semconv.OBJECT_STORE.key: limit.store, semconv.OPERATION.key: limit.operation},
        )
        for limit in list(_LIMITS)
    ]


metrics.get_meter("aquifer_storage").create_observable_gauge(
    semconv.OBJECT_STORE_LIMIT.name,
    callbacks=[_observe],
    unit=semconv.OBJECT_STORE_LIMIT.unit,
    description=semconv.OBJECT_STORE_LIMIT.doc,
)


class AdaptiveLimit:
    """Requests of one kind of operation that may be under way at once.

    A refusal (503, 429, no answer) halves the limit, once for all requests that were under way together; successes raise it by one
    per round. Below one, a single request goes at a time, and after a refusal the next one waits `0.1 s / limit`: a store that
    refuses everything is asked less than once a second, and is found again when it recovers.

    Waiting ends with an error only when the store took nothing for `patience_s`; behind a store that makes progress one waits on.
    """

    def __init__(
        self, store: str, operation: str, *, most: int, patience_s: float, clock: Clock
    ) -> None:
        self.store = store
        self.operation = operation
        self.value = float(most)
        self._most = most
        self._patience_s = patience_s
        self._clock = clock
        self._in_use = 0
        self._waiting: deque[tuple[asyncio.Future[None], float]] = deque()
        self._lowered_s = float("-inf")
        self._succeeded_s = float("-inf")
        self._pauses = TaskOwner()
        _LIMITS.add(self)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold a place for one request; how it ends moves the limit.

        Raises:
            RemoteStorageUnavailableError: the store has refused everything since long.
        """
        await self._acquire()
        began_s = self._clock.monotonic_s()
        try:
            yield
        except RefusedByStoreError:
            self._release()  # credentials or bucket: says nothing about load
            raise
        except RemoteStorageUnavailableError as error:
            self._refused(began_s, error)
            raise
        except AquiferError:
            self._succeeded()  # it was an answer
            raise
        except BaseException:
            self._release()
            raise
        self._succeeded()

    def lower(self, error: AquiferError) -> None:
        """Count a refusal that came after the request's place was given back."""
        self._lower(self._clock.monotonic_s(), error)

    async def close(self) -> None:
        """End pauses; who waits is told that the store is closed."""
        _LIMITS.discard(self)
        while self._waiting:
            self._fail(self._waiting.popleft()[0], "the object store was closed")
        await self._pauses.close()

    async def _acquire(self) -> None:
        if not self._waiting and self._in_use < self._places:
            self._in_use += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (place, self._clock.monotonic_s())
        self._waiting.append(entry)
        try:
            await place
        except asyncio.CancelledError:
            if entry in self._waiting:
                self._waiting.remove(entry)
            elif place.done() and not place.cancelled() and place.exception() is None:
                self._release()
            raise

    @property
    def _places(self) -> int:
        return max(1, int(self.value))

    def _release(self) -> None:
        self._in_use -= 1
        while self._waiting and self._in_use < self._places:
            place, _ = self._waiting.popleft()
            if not place.done():
                self._in_use += 1
                place.set_result(None)

    def _succeeded(self) -> None:
        self._succeeded_s = self._clock.monotonic_s()
        more = self.value * 2 if self.value < 1 else self.value + 1 / self.value
        self.value = min(float(self._most), more)
        self._release()

    def _refused(self, began_s: float, error: AquiferError) -> None:
        self._lower(began_s, error)
        if self.value < 1:
            self._pauses.start(self._pause(_SPACING_S / self.value), self._release)
        else:
            self._release()
        self._give_up_waiting(error)

    def _lower(self, began_s: float, error: AquiferError) -> None:
        if began_s < self._lowered_s:
            return  # under way together with one that has lowered the limit already
        self._lowered_s = self._clock.monotonic_s()
        self.value = max(_LOWEST, self.value * _DECREASE)
        logger.info(
            "object_store_limit_lowered",
            store=self.store,
            operation=self.operation,
            limit=self.value,
            waiting=len(self._waiting),
            error=error.message,
        )

    async def _pause(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._release()

    def _give_up_waiting(self, error: AquiferError) -> None:
        now_s = self._clock.monotonic_s()
        while self._waiting:
            place, since_s = self._waiting[0]
            if now_s - max(since_s, self._succeeded_s) <= self._patience_s:
                return
            self._waiting.popleft()
            self._fail(
                place, f"the object store refuses {self.operation} requests: {error.message}"
            )

    def _fail(self, place: asyncio.Future[None], text: str) -> None:
        if not place.done():
            place.set_exception(RemoteStorageUnavailableError(text, retry_after_ms=_RETRY_AFTER_MS))
