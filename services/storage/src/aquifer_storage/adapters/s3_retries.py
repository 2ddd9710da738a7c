"""When a request to the store is tried again, and how many may be under way."""

import random
from typing import Final

from aquifer_core.errors import RemoteStorageUnavailableError
from aquifer_core.ports import Clock

from aquifer_storage.adapters.adaptive_limit import AdaptiveLimit
from aquifer_storage.adapters.s3_errors import RefusedByStoreError

_BACKOFF_MIN_S: Final = 0.1
_BACKOFF_MAX_S: Final = 5.0

_KINDS: Final = {
    "get": ("get_object", "head_object", "head_bucket"),
    "put": ("put_object", "create_upload", "upload_part", "complete_upload"),
    "delete": ("delete_object", "abort_upload"),
    "list": ("list_objects", "list_uploads"),
}


class Retries:
    """Decides about further attempts of one request: back-off with full jitter until the time is over.

    The time counts from the first failure: a request that was long under way before its connection broke gets another attempt.
    """

    def __init__(self, timeout_s: float, clock: Clock) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        self._end_s: float | None = None
        self._was_resigned = False
        self.attempt = 1

    async def pause(
        self, error: RemoteStorageUnavailableError, *, is_resigned: bool = False
    ) -> None:
        """Wait before the next attempt.

        Args:
            error: how the last one ended.
            is_resigned: credentials have changed since it began; then it is made again once, also when it was refused.

        Raises:
            RemoteStorageUnavailableError: the error given, when another attempt makes no sense.
        """
        if is_resigned and not self._was_resigned:
            self._was_resigned = True
            self.attempt += 1
            return
        now_s = self._clock.monotonic_s()
        if self._end_s is None:
            self._end_s = now_s + self._timeout_s
        longest_s = min(_BACKOFF_MIN_S * 2.0 ** min(self.attempt, 16), _BACKOFF_MAX_S)
        pause_s = random.uniform(0.0, longest_s)
        if isinstance(error, RefusedByStoreError) or now_s + pause_s > self._end_s:
            raise error
        self.attempt += 1
        await self._clock.sleep(pause_s)


class RequestLimits:
    """The limits of a store, one for each kind of operation: get, put, delete, list."""

    def __init__(self, store: str, *, most: int, patience_s: float, clock: Clock) -> None:
        self._limits = {
            kind: AdaptiveLimit(store, kind, most=most, patience_s=patience_s, clock=clock)
            for kind in _KINDS
        }
        self._of = {
            operation: self._limits[kind] for kind, names in _KINDS.items() for operation in names
        }

    def of(self, operation: str) -> AdaptiveLimit:
        """Return the limit of an operation."""
        return self._of[operation]

    async def close(self) -> None:
        """End what waits."""
        for limit in self._limits.values():
            await limit.close()
