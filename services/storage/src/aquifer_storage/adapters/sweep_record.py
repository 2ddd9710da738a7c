"""Counts what sweeps delete."""

from collections.abc import Awaitable, Callable
from typing import Final

from aquifer_rpc import semconv
from opentelemetry import metrics

_LEFTOVERS: Final = metrics.get_meter("aquifer_storage").create_counter(
    semconv.OBJECT_STORE_LEFTOVERS.name,
    unit=semconv.OBJECT_STORE_LEFTOVERS.unit,
    description=semconv.OBJECT_STORE_LEFTOVERS.doc,
)


def recorded(sweep: Callable[[], Awaitable[int]], store: str) -> Callable[[], Awaitable[int]]:
    """Return a sweep that counts the objects which it deletes."""

    async def counted() -> int:
        swept = await sweep()
        if swept:
            _LEFTOVERS.add(swept, {semconv.OBJECT_STORE.key: store})
        return swept

    return counted
