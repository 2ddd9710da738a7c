"""A bounded pool of threads for work that needs the processor and releases the interpreter lock."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class CpuThreads:
    """Digests, compresses and seals beside the event loop; whatever is asked at once, no more than `count` run."""

    def __init__(self, count: int | None = None) -> None:
        self.count = count or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self.count, thread_name_prefix="cpu")

    async def run(self, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run a call in a thread. When cancelled, a call that has begun ends by itself; its answer is dropped."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, partial(call, *args, **kwargs))

    def close(self) -> None:
        """Take no more calls. Idempotent."""
        self._pool.shutdown(wait=False, cancel_futures=True)
