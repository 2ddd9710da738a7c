"""Runs the suite in the foreground until a signal, and says on disk where it is."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

from aquifer_standalone.stack import Stack, StackSettings

STATE_FILE = "standalone.json"


async def run_until_signal(data_dir: Path, brokers: int, otlp_endpoint: str | None) -> int:
    """Starts everything on the ports of the README, serves until SIGTERM or SIGINT, stops everything.

    `data_dir`/standalone.json exists exactly while everything is ready.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    settings = StackSettings(
        data_dir=data_dir, brokers=brokers, stable_ports=True, otlp_endpoint=otlp_endpoint
    )
    state_file = data_dir / STATE_FILE
    async with Stack(settings) as stack:
        _write(state_file, describe(stack))
        try:
            await stopping.wait()
        finally:
            state_file.unlink(missing_ok=True)
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
