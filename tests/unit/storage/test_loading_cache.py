"""The loading cache: one load for all, failures not kept, loads outlive who asked."""

import asyncio

import pytest
from aquifer_storage.domain.loading_cache import LoadingCache


class Loader:
    """Loads when told to, and counts."""

    def __init__(self) -> None:
        self.loads = 0
        self.go = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> str:
        self.loads += 1
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return f"value {self.loads}"


async def test_many_who_ask_share_one_load() -> None:
    cache: LoadingCache[str, str] = LoadingCache(10)
    loader = Loader()
    asking = [asyncio.create_task(cache.get("a", loader)) for _ in range(20)]
    await asyncio.sleep(0)
    loader.go.set()
    assert set(await asyncio.gather(*asking)) == {"value 1"}
    assert await cache.get("a", loader) == "value 1"
    assert loader.loads == 1


async def test_a_failed_load_is_told_to_all_and_not_kept() -> None:
    cache: LoadingCache[str, str] = LoadingCache(10)
    loader = Loader()
    loader.error = ValueError("no")
    loader.go.set()
    answers = await asyncio.gather(
        *(cache.get("a", loader) for _ in range(3)), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [ValueError] * 3
    assert loader.loads == 1
    loader.error = None
    assert await cache.get("a", loader) == "value 2"


async def test_a_load_goes_on_when_who_asked_has_left() -> None:
    cache: LoadingCache[str, str] = LoadingCache(10)
    loader = Loader()
    asking = asyncio.create_task(cache.get("a", loader))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    loader.go.set()
    assert await cache.get("a", loader) == "value 1"
    assert loader.loads == 1


async def test_what_is_forgotten_during_its_load_is_loaded_again() -> None:
    cache: LoadingCache[str, str] = LoadingCache(10)
    loader = Loader()
    asking = asyncio.create_task(cache.get("a", loader))
    await asyncio.sleep(0)
    cache.forget("a")
    loader.go.set()
    await asking
    assert await cache.get("a", loader) == "value 2"


async def test_the_weight_is_bounded_and_the_least_used_leave() -> None:
    cache: LoadingCache[int, str] = LoadingCache(10, weigh=len)
    loads: list[int] = []

    async def get(key: int) -> str:
        async def load() -> str:
            loads.append(key)
            return "x" * 4

        return await cache.get(key, load)

    for key in (1, 2, 1, 3, 1, 2):
        await get(key)
    assert loads == [1, 2, 3, 2]


async def test_closing_ends_loads() -> None:
    cache: LoadingCache[str, str] = LoadingCache(10)
    asking = asyncio.create_task(cache.get("a", Loader()))
    await asyncio.sleep(0)
    await cache.close()
    with pytest.raises(Exception, match="closing"):
        await asking
