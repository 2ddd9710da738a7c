"""Blocking calls of a client library, which somebody who interrupts the command does not wait for."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls a function in a thread of its own that ends with the process at the latest.

    The threads of `asyncio.to_thread` are waited for at the end of the program: an interrupt would take effect when the call
    is over, which for a topic that is read to its end may be any time.
    """
    answer: Future[T] = Future()
    # From here on it cannot be cancelled under the thread that settles it.
    answer.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            answer.set_exception(error)
        else:
            answer.set_result(result)

    threading.Thread(target=run, daemon=True, name="kafka").start()
    return await asyncio.wrap_future(answer)
