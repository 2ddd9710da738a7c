"""Work that waits for the disk, outside the event loop's thread."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

__all__ = ["on_disk"]

_T = TypeVar("_T")


async def on_disk(work: Callable[..., _T], *args: object) -> _T:
    """Runs work in a thread and returns only when it is over, also when the caller is cancelled meanwhile.

    A thread cannot be stopped: going on while it still writes a file or reads from a descriptor would let two writers meet.

    Raises:
        OSError: What the work raised.
        CancelledError: The caller was cancelled. If the work failed, that is the cause, which guards look at: nobody else
            learns of it, and a disk tells of a failed write once.
    """
    future = asyncio.get_running_loop().run_in_executor(None, partial(work, *args))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError as cancelled:
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:
                continue
        raise cancelled from (None if future.cancelled() else future.exception())
