"""Byte quotas: token buckets with reserve and commit (KIP-956)."""

from aquifer_core.errors import ErrorReason, QuotaExceededError
from aquifer_core.ports import Clock

__all__ = ["ByteQuota", "Reservation"]


class ByteQuota:
    """Bytes per second over a window.

    Whatever is asked passes while the bucket holds anything; the bucket may then be in debt, and the next one waits. So a segment
    larger than a window's worth is not locked out, it delays what follows.
    """

    def __init__(
        self,
        bytes_per_second: int | None,
        *,
        reason: ErrorReason,
        clock: Clock,
        window_s: float = 1.0,
    ) -> None:
        """Prepares a full bucket.

        Args:
            bytes_per_second: None: no limit.
            reason: of the refusal.
            clock: measures and waits.
            window_s: the bucket holds the bytes of this long.
        """
        self._rate = bytes_per_second
        self._reason = reason
        self._clock = clock
        self._capacity = float((bytes_per_second or 0) * window_s)
        self._level = self._capacity
        self._filled_s = clock.monotonic_s()

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit at all."""
        return self._rate is not None

    def try_reserve(self, size_bytes: int) -> "Reservation":
        """Takes bytes out of the bucket.

        Raises:
            QuotaExceededError: the bucket is empty; `retry_after_ms` says until when.
        """
        wait_s = self._wait_s()
        if wait_s > 0:
            raise QuotaExceededError(
                f"{self._rate} bytes per second are spent",
                reason=self._reason,
                retry_after_ms=max(1, round(wait_s * 1000)),
            )
        self._level -= size_bytes
        return Reservation(self, size_bytes)

    def book(self, size_bytes: int) -> float:
        """Takes bytes out of the bucket at once; answers in how many seconds they may be used. Whoever comes later waits longer."""
        wait_s = self._wait_s()
        self._level -= size_bytes
        return wait_s

    async def reserve(self, size_bytes: int) -> "Reservation":
        """Takes bytes out of the bucket and waits until they may be used."""
        wait_s = self.book(size_bytes)
        try:
            if wait_s > 0:
                await self._clock.sleep(wait_s)
        except BaseException:
            self.give_back(size_bytes)
            raise
        return Reservation(self, size_bytes)

    def give_back(self, size_bytes: int) -> None:
        """Puts bytes back that were reserved and not used; a negative number takes more."""
        self._level = min(self._capacity, self._level + size_bytes)

    def _wait_s(self) -> float:
        """Seconds until the bucket holds something; 0 when it does."""
        if self._rate is None:
            return 0.0
        now_s = self._clock.monotonic_s()
        self._level = min(self._capacity, self._level + (now_s - self._filled_s) * self._rate)
        self._filled_s = now_s
        return 0.0 if self._level > 0 else (1.0 - self._level) / self._rate


class Reservation:
    """Bytes taken out of a quota; `commit` says how many it were in the end, once."""

    __slots__ = ("_quota", "_reserved_bytes")

    def __init__(self, quota: ByteQuota, reserved_bytes: int) -> None:
        self._quota = quota
        self._reserved_bytes = reserved_bytes

    def commit(self, used_bytes: int) -> None:
        """Settles the difference between what was reserved and what was used."""
        self._quota.give_back(self._reserved_bytes - used_bytes)
        self._reserved_bytes = used_bytes
