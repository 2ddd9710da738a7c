import asyncio

import pytest
from aquifer_broker.tiering.read_silence import ReadSilence
from aquifer_core.errors import (
    DeadlineExceededError,
    OffsetOutOfRangeError,
    QuotaExceededError,
    RemoteStorageUnavailableError,
)
from fixtures.tiered_broker import partition_of

EVENTS, OTHERS = partition_of("events"), partition_of("others")


class Watch:
    """A silence on a clock of its own."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.silence = ReadSilence(5.0, now_s=lambda: self.now)


@pytest.fixture
def watch() -> Watch:
    return Watch()


def test_a_read_is_waited_for_until_it_has_been_silent_for_long(watch: Watch) -> None:
    assert not watch.silence.is_stalled(EVENTS)
    watch.silence.begun(EVENTS)
    watch.now += 4.9
    assert not watch.silence.is_stalled(EVENTS)
    watch.now += 0.1
    assert watch.silence.is_stalled(EVENTS)
    watch.silence.ended(EVENTS, None)
    assert not watch.silence.is_stalled(EVENTS)


def test_reads_that_are_answered_one_after_the_other_are_never_silent(watch: Watch) -> None:
    """A slow store is not a dead one."""
    watch.silence.begun(EVENTS)
    for _ in range(5):
        watch.silence.begun(EVENTS)
        watch.now += 4.0
        watch.silence.ended(EVENTS, None)
        assert not watch.silence.is_stalled(EVENTS)


@pytest.mark.parametrize(
    "error",
    [
        RemoteStorageUnavailableError("away"),
        DeadlineExceededError("late"),
        QuotaExceededError("full"),
        asyncio.CancelledError(),
    ],
    ids=repr,
)
def test_a_failure_without_an_answer_does_not_end_the_silence(
    watch: Watch, error: BaseException
) -> None:
    watch.silence.begun(EVENTS)
    watch.now += 6.0
    watch.silence.ended(EVENTS, error)
    watch.silence.begun(EVENTS)
    assert watch.silence.is_stalled(EVENTS)
    watch.silence.ended(EVENTS, OffsetOutOfRangeError("an answer"))
    assert not watch.silence.is_stalled(EVENTS)
    watch.silence.begun(EVENTS)
    assert not watch.silence.is_stalled(EVENTS)


def test_a_store_that_answers_nobody_keeps_a_new_reader_waiting_no_longer(watch: Watch) -> None:
    watch.silence.begun(EVENTS)
    watch.now += 6.0
    watch.silence.begun(OTHERS)
    assert watch.silence.is_stalled(OTHERS)


def test_a_partition_that_is_answered_says_nothing_of_another_one(watch: Watch) -> None:
    """As with one of several storage services that hangs."""
    watch.silence.begun(EVENTS)
    for _ in range(3):
        watch.silence.begun(OTHERS)
        watch.now += 2.0
        watch.silence.ended(OTHERS, None)
    assert watch.silence.is_stalled(EVENTS)
    assert not watch.silence.is_stalled(OTHERS)
