"""Blocking calls of a client library, which somebody who interrupts the command does not wait for."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls a function in a thread of its own that ends with the process at the latest.

    The threads of `asyncio.to_thread` are waited for at the end of the program: an interrupt would take effect when the call
    is over, which for a topic that is read to its end may be any time.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]  # it is the function's

    def run() -> None:
        result, error = None, None
        try:
            result = function(*args, **kwargs)
        except BaseException as failure:
            error = failure
        with suppress(RuntimeError):  # nobody waits any more: the loop is closed
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, daemon=True, name="kafka").start()
    return await answer
