import pytest
from aquifer_broker.tiering.read_limit import ReadLimit, Window

_TARGET_S = 0.002
_WINDOW_S = 0.2
_SECOND = 5
_MUCH = 64 << 20


def _window(
    late_ms: float = 0.0, *, reads: int = 8, brought_bytes: int = _MUCH, samples: int = 40
) -> Window:
    return Window(
        seconds=_WINDOW_S,
        late_s=[late_ms / 1000] * samples,
        most_reads=reads,
        brought_bytes=brought_bytes,
    )


@pytest.fixture
def limit() -> ReadLimit:
    return ReadLimit(most=100, target_s=_TARGET_S)


def _lower(limit: ReadLimit, windows: int = 10) -> None:
    for _ in range(windows):
        limit.seen(_window(5))


def test_lateness_halves_what_is_in_use_down_to_one(limit: ReadLimit) -> None:
    seen = []
    for _ in range(5):
        limit.seen(_window(2.1))
        seen.append(limit.value)

    assert seen == [4, 2, 1, 1, 1]


def test_a_limit_below_what_is_in_use_is_halved_itself(limit: ReadLimit) -> None:
    limit.seen(_window(5, reads=50))
    assert limit.value == 25
    limit.seen(_window(5, reads=40))
    assert limit.value == 12


def test_a_second_in_time_raises_the_limit_by_one_up_to_the_most() -> None:
    limit = ReadLimit(most=3, target_s=_TARGET_S)
    _lower(limit)
    seen = []
    for _ in range(4 * _SECOND):
        limit.seen(_window(1.9))
        seen.append(limit.value)

    assert seen[_SECOND - 2 :: _SECOND] == [1, 2, 3, 3]
    assert seen[_SECOND - 1 :: _SECOND] == [2, 3, 3, 3]
    assert not limit.lowered


def test_lateness_begins_the_second_anew(limit: ReadLimit) -> None:
    _lower(limit)
    for _ in range(3):
        for _ in range(_SECOND - 1):
            limit.seen(_window())
        limit.seen(_window(5))

    assert limit.value == 1


def test_one_wake_up_of_ten_may_be_late(limit: ReadLimit) -> None:
    few = Window(
        seconds=_WINDOW_S,
        late_s=[0.05] * 3 + [0.0] * 37,
        most_reads=8,
        brought_bytes=_MUCH,
    )
    more = Window(
        seconds=_WINDOW_S,
        late_s=[0.05] * 4 + [0.0] * 36,
        most_reads=8,
        brought_bytes=_MUCH,
    )
    assert few.delay_s == 0
    assert more.delay_s == 0.05
    limit.seen(few)
    assert not limit.lowered
    limit.seen(more)
    assert limit.lowered


def test_nothing_seen_and_nothing_in_use_is_not_late(limit: ReadLimit) -> None:
    for _ in range(20):
        limit.seen(_window(samples=0))
        limit.seen(_window(5, reads=0))

    assert not limit.lowered


def test_reads_that_bring_little_are_not_what_makes_the_loop_late(limit: ReadLimit) -> None:
    """A distant or slow store: its readers would be held up for nothing."""
    little = int(_WINDOW_S * (4 << 20))
    for _ in range(20):
        limit.seen(_window(20, brought_bytes=little))
    assert not limit.lowered

    _lower(limit)
    assert limit.value == 1
    for _ in range(40):
        limit.seen(_window(20, brought_bytes=0))
    assert limit.value > 8


def test_a_lowered_limit_is_kept_for_a_minute_without_hot_traffic(limit: ReadLimit) -> None:
    _lower(limit)
    limit.quiet(59)
    assert limit.value == 1
    limit.seen(_window(5))
    limit.quiet(59)
    assert limit.value == 1
    limit.quiet(1)
    assert limit.value == 100
