"""Byte quotas (KIP-956)."""

import pytest
from aquifer_core.errors import ErrorReason, QuotaExceededError
from aquifer_manager.domain.quota import ByteQuota
from fixtures.manager_world import HastyClock


def quota(clock: HastyClock, rate: int | None) -> ByteQuota:
    return ByteQuota(rate, reason=ErrorReason.COPY_QUOTA, clock=clock, window_s=2.0)


def test_without_a_limit_everything_passes() -> None:
    free = quota(HastyClock(), None)
    for _ in range(10):
        free.try_reserve(10**12)


async def test_a_debt_is_paid_before_anything_else_passes() -> None:
    clock = HastyClock()
    limited = quota(clock, 100)
    limited.try_reserve(700)
    with pytest.raises(QuotaExceededError) as raised:
        limited.try_reserve(1)
    assert raised.value.retry_after_ms == pytest.approx(5010)
    before_s = clock.monotonic_s()
    await limited.reserve(1)
    assert clock.monotonic_s() - before_s == pytest.approx(5.01)


def test_what_was_not_used_is_given_back_once() -> None:
    limited = quota(HastyClock(), 100)
    reservation = limited.try_reserve(500)
    reservation.commit(50)
    reservation.commit(50)
    limited.try_reserve(150)
    with pytest.raises(QuotaExceededError):
        limited.try_reserve(1)


async def test_the_bucket_never_holds_more_than_its_window() -> None:
    clock = HastyClock()
    limited = quota(clock, 100)
    await clock.sleep(3600)
    limited.try_reserve(200)
    with pytest.raises(QuotaExceededError):
        limited.try_reserve(1)
