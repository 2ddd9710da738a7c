"""Runs the suite in the foreground until a signal, and says on disk where it is."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from aquifer_standalone.stack import Stack, StackSettings

STATE_FILE = "standalone.json"


async def run_until_signal(data_dir: Path, brokers: int, otlp_endpoint: str | None) -> int:
    """Starts everything on the ports of the README, serves until SIGTERM or SIGINT, stops everything."""
    stack = Stack(
        StackSettings(
            data_dir=data_dir, brokers=brokers, stable_ports=True, otlp_endpoint=otlp_endpoint
        )
    )
    return await serve_until_signal(stack, data_dir / STATE_FILE, lambda: describe(stack))


async def serve_until_signal(
    suite: AbstractAsyncContextManager[Any],
    state_file: Path,
    describe_it: Callable[[], dict[str, Any]],
) -> int:
    """Opens the suite until SIGTERM or SIGINT; one that comes while it starts ends the start.

    The state file exists exactly while everything is ready.
    """
    stopping = asyncio.Event()
    serving = False
    running = asyncio.current_task()
    assert running is not None

    def stop() -> None:
        if not serving and not stopping.is_set():
            running.cancel()
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        async with suite:
            serving = True
            _write(state_file, describe_it())
            try:
                await stopping.wait()
            finally:
                _remove(state_file)
    except asyncio.CancelledError:
        if not stopping.is_set():
            raise
        running.uncancel()
    return 0


def describe(stack: Stack) -> dict[str, Any]:
    """What runs where, as plain data."""
    return {
        "pid": os.getpid(),
        "bootstrap_servers": stack.bootstrap,
        "storage": stack.address("storage"),
        "metadata": stack.address("metadata"),
        "manager": stack.address("manager"),
        "s3": stack.address("s3"),
        "postgres": stack.address("postgres"),
        "logs": str(stack.supervisor.data_dir / "logs"),
    }


def _write(file: Path, state: dict[str, Any]) -> None:
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(state, indent=2) + "\n")
    fresh.replace(file)


def _remove(file: Path) -> None:
    file.unlink(missing_ok=True)
