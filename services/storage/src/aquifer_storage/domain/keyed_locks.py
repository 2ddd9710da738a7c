"""One lock per key, kept only while somebody uses it."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)


class KeyedLocks(Generic[_Key]):
    """Keeps work on one key apart, and lets work on others go on."""

    def __init__(self) -> None:
        self._locks: dict[_Key, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def hold(self, key: _Key) -> AsyncIterator[None]:
        """Hold the key's lock; who comes later waits its turn."""
        lock, users = self._locks.get(key) or (asyncio.Lock(), 0)
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(key)
            if users > 1:
                self._locks[key] = (lock, users - 1)
