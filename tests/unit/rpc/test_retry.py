import pytest
from aquifer_core.errors import (
    AquiferError,
    ConcurrentUpdateError,
    CorruptSegmentError,
    DeadlineExceededError,
    QuotaExceededError,
    RemoteStorageUnavailableError,
    UnavailableError,
)
from aquifer_rpc.retry import RetryPolicy

POLICY = RetryPolicy(max_attempts=5, backoff_min_s=0.1, backoff_max_s=0.3)


@pytest.mark.parametrize(("attempt", "longest_s"), [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.3)])
def test_the_pause_doubles_with_jitter_up_to_its_longest(attempt: int, longest_s: float) -> None:
    pauses = [POLICY.pause_s(UnavailableError("x"), attempt) or 0 for _ in range(200)]

    assert min(pauses) >= longest_s / 2
    assert max(pauses) <= longest_s
    assert len(set(pauses)) > 100


def test_the_server_may_ask_for_a_longer_pause() -> None:
    error = RemoteStorageUnavailableError("x", retry_after_ms=1500)

    assert POLICY.pause_s(error, 1) == 1.5


def test_a_quota_is_waited_for_as_told_and_a_little_longer() -> None:
    error = QuotaExceededError("x", retry_after_ms=1000)

    pauses = [POLICY.pause_s(error, 1) or 0 for _ in range(200)]

    assert min(pauses) >= 1.0
    assert max(pauses) <= 1.1


def test_the_last_attempt_is_the_last() -> None:
    assert POLICY.pause_s(UnavailableError("x"), 5) is None


@pytest.mark.parametrize(
    "error",
    [
        ConcurrentUpdateError("x", retry_after_ms=1),
        DeadlineExceededError("x"),
        CorruptSegmentError("x"),
        AquiferError("x"),
        QuotaExceededError("x"),
    ],
)
def test_nothing_else_is_repeated(error: AquiferError) -> None:
    assert POLICY.pause_s(error, 1) is None
