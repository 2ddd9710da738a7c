"""Blocking calls in a pool of threads, with the caller's trace context."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class WorkerThreads:
    """A pool of threads for calls that block; each call must have a deadline of its own."""

    def __init__(self, count: int, name: str) -> None:
        self.count = count
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)

    async def run(self, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run a call in a thread and return what it returns.

        A call that has begun cannot be stopped: cancellation waits for its end, so that nothing the call uses is taken from it.
        """
        context = contextvars.copy_context()
        work = self._pool.submit(lambda: context.run(call, *args, **kwargs))
        future = asyncio.wrap_future(work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            # Nobody is left to hear what the call fails with.
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
            if not work.cancel():
                await asyncio.wait([future])
            raise

    def close(self) -> None:
        """Let the calls under way end by themselves and take no more. Idempotent."""
        self._pool.shutdown(wait=False, cancel_futures=True)
