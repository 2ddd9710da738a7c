"""When it is fair to end leases."""

from aquifer_core.ports import Clock


class LeaseWatchman:
    """Says whether overdue leases may be ended.

    Brokers cannot renew leases while this service or its database is away. So after its start, and after any gap in its own
    rounds, the watchman waits for the length of a lease before it calls anybody dead.
    """

    def __init__(self, clock: Clock, *, lease_ms: int) -> None:
        self._clock = clock
        self._lease_s = lease_ms / 1000
        self._last_round_s: float | None = None
        self._fair_from_s = 0.0

    def may_expire(self) -> bool:
        """To be asked once a round."""
        now_s = self._clock.monotonic_s()
        if self._last_round_s is None or now_s - self._last_round_s > self._lease_s / 2:
            self._fair_from_s = now_s + self._lease_s
        self._last_round_s = now_s
        return now_s >= self._fair_from_s

    def interrupted(self) -> None:
        """A round failed: nobody knows how long brokers could not reach the database either."""
        self._last_round_s = None
