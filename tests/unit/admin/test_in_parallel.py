"""Calls that a command makes at the same time."""

import asyncio
import gc
import warnings

import pytest
from aquifer_admin.cluster import in_parallel
from aquifer_core.errors import UnavailableError


async def fail() -> None:
    """A call of a service that is away."""
    raise UnavailableError("away")


async def wait() -> None:
    """A call whose answer does not come."""
    await asyncio.Event().wait()


async def test_those_whose_turn_has_not_come_when_one_fails_are_no_complaint() -> None:
    """A failure is one line on standard error: Python's warnings about them would be further ones."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with pytest.raises(UnavailableError):
            await in_parallel([fail(), *(wait() for _ in range(100))])
        gc.collect()
    assert not [str(each.message) for each in found]
