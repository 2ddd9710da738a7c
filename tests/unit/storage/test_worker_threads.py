"""Blocking calls in threads."""

import asyncio
import gc
import threading
from typing import Any

import pytest
from aquifer_storage.adapters.worker_threads import WorkerThreads


async def test_a_failure_that_nobody_waits_for_any_more_is_not_reported_as_unhandled() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    begun, go_on = threading.Event(), threading.Event()

    def fail() -> None:
        begun.set()
        go_on.wait(10)
        raise OSError("the store hung up")

    threads = WorkerThreads(1, "test")
    call = asyncio.create_task(threads.run(fail))
    await asyncio.to_thread(begun.wait, 10)
    call.cancel()
    await asyncio.to_thread(go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await call
    del call
    threads.close()
    gc.collect()
    await asyncio.to_thread(lambda: None)
    assert not reported
