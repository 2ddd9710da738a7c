"""When it is fair to end leases."""

from aquifer_core.ports import Clock


class LeaseWatchman:
    """Says whether overdue leases may be ended.

    Brokers cannot renew leases while this service or its database is away. So after its start, after any gap in its own rounds,
    and after the clock was set that leases run by, the watchman waits for the length of a lease before it calls anybody dead.
    """

    def __init__(self, clock: Clock, *, lease_ms: int) -> None:
        self._clock = clock
        self._lease_s = lease_ms / 1000
        self._last_round_s: float | None = None
        self._ahead_s = 0.0
        self._fair_from_s = 0.0

    def may_expire(self, lease_clock_s: float) -> bool:
        """To be asked once a round, with what the clock of leases shows now."""
        now_s = self._clock.monotonic_s()
        ahead_s = lease_clock_s - now_s
        if self._last_round_s is None or self._is_gap(now_s - self._last_round_s, ahead_s):
            self._fair_from_s = now_s + self._lease_s
        self._last_round_s, self._ahead_s = now_s, ahead_s
        return now_s >= self._fair_from_s

    def interrupted(self) -> None:
        """A round failed: nobody knows how long brokers could not reach the database either."""
        self._last_round_s = None

    def _is_gap(self, since_last_s: float, ahead_s: float) -> bool:
        return max(since_last_s, abs(ahead_s - self._ahead_s)) > self._lease_s / 2
