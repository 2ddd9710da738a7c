"""When leases may be ended."""

import pytest
from aquifer_metadata.domain.lease_expiry import LeaseWatchman


class HandClock:
    """A clock that stands still until it is moved; beside it that of leases, which may be set."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.leases_ahead_s = 1_000_000.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic_s(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def rounds(watchman: LeaseWatchman, clock: HandClock, count: int) -> list[bool]:
    """One round a second."""
    answers = []
    for _ in range(count):
        answers.append(watchman.may_expire(clock.seconds + clock.leases_ahead_s))
        clock.seconds += 1
    return answers


def test_nobody_is_called_dead_before_everybody_had_a_lease_of_time_to_call() -> None:
    clock = HandClock()
    watchman = LeaseWatchman(clock, lease_ms=4_000)
    assert rounds(watchman, clock, 6) == [False] * 4 + [True] * 2


def test_a_round_that_failed_or_came_late_begins_the_wait_again() -> None:
    clock = HandClock()
    watchman = LeaseWatchman(clock, lease_ms=4_000)
    rounds(watchman, clock, 6)
    watchman.interrupted()
    assert rounds(watchman, clock, 5) == [False] * 4 + [True]
    clock.seconds += 3
    assert rounds(watchman, clock, 5) == [False] * 4 + [True]


@pytest.mark.parametrize("set_by_s", [3600, -3600])
def test_a_clock_of_leases_that_was_set_ends_no_leases_at_once(set_by_s: int) -> None:
    """All would be overdue, of brokers that live."""
    clock = HandClock()
    watchman = LeaseWatchman(clock, lease_ms=4_000)
    rounds(watchman, clock, 6)
    clock.leases_ahead_s += set_by_s
    assert rounds(watchman, clock, 5) == [False] * 4 + [True]


def test_a_clock_of_leases_that_runs_a_little_fast_is_of_no_importance() -> None:
    clock = HandClock()
    watchman = LeaseWatchman(clock, lease_ms=4_000)
    rounds(watchman, clock, 6)
    for _ in range(10):
        clock.leases_ahead_s += 0.5
        assert rounds(watchman, clock, 1) == [True]
