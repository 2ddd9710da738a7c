"""A bounded cache that loads what it does not have, each entry once however many ask."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from aquifer_core.errors import RemoteStorageUnavailableError

from aquifer_storage.domain.task_owner import TaskOwner

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


def _one(value: object) -> int:
    return 1


class LoadingCache(Generic[_Key, _Value]):
    """Values by key, bounded by the sum of their weights; what was used least recently goes first.

    A load goes on when who asked for it has left. A failed load is told to all who wait for it and is not kept.
    """

    def __init__(self, capacity: int, weigh: Callable[[_Value], int] = _one) -> None:
        self._capacity = capacity
        self._weigh = weigh
        self._weight = 0
        self._values: OrderedDict[_Key, tuple[_Value, int]] = OrderedDict()
        self._loads: dict[_Key, asyncio.Future[_Value]] = {}
        self._tasks = TaskOwner()

    async def get(self, key: _Key, load: Callable[[], Awaitable[_Value]]) -> _Value:
        """Return the value of a key, loaded when it is not there.

        Raises:
            Exception: what the load raised.
        """
        found = self._values.get(key)
        if found is not None:
            self._values.move_to_end(key)
            return found[0]
        future = self._loads.get(key)
        if future is None:
            future = asyncio.get_running_loop().create_future()
            self._loads[key] = future
            closing = RemoteStorageUnavailableError("the service is closing")
            self._tasks.start(
                self._load(key, future, load), lambda: self._fail(key, future, closing)
            )
        return await asyncio.shield(future)

    def forget(self, key: _Key) -> None:
        """Drop a value; a load under way is not kept either."""
        self._loads.pop(key, None)
        found = self._values.pop(key, None)
        if found is not None:
            self._weight -= found[1]

    async def close(self) -> None:
        """End the loads under way."""
        await self._tasks.close()

    async def _load(
        self,
        key: _Key,
        future: asyncio.Future[_Value],
        load: Callable[[], Awaitable[_Value]],
    ) -> None:
        try:
            value = await load()
        except Exception as error:  # handed on to all who wait
            self._fail(key, future, error)
        else:
            if self._loads.get(key) is future:
                del self._loads[key]
                self._keep(key, value)
            future.set_result(value)

    def _fail(self, key: _Key, future: asyncio.Future[_Value], error: Exception) -> None:
        if self._loads.get(key) is future:
            del self._loads[key]
        if future.done():
            return
        future.set_exception(error)
        future.exception()  # retrieved, also when everybody has left

    def _keep(self, key: _Key, value: _Value) -> None:
        weight = self._weigh(value)
        self._values[key] = (value, weight)
        self._weight += weight
        while self._weight > self._capacity and len(self._values) > 1:
            _, (_, dropped) = self._values.popitem(last=False)
            self._weight -= dropped
