"""A broker whose event loop is watched, and a suite with one.

python -m bench.loop_watch FILE SERVER.PROPERTIES       on SIGUSR1 it writes to FILE what it saw since the last time
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import uvloop
from aquifer_broker.__main__ import main as run_broker
from aquifer_standalone.spec import ProcessSpec
from aquifer_standalone.stack import Stack
from fixtures.polling import eventually

_PAUSE_S: Final = 0.002
_ASK_S: Final = 60.0


class LoopWatch:
    """Wakes every 2 ms and looks at one pass of the loop.

    The processor time of a pass is what the broker's own work holds up everybody else for; how late a wake-up is also contains waiting
    for a processor, which other processes may have.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._pass_cpu_s: list[float] = []
        self._late_s: list[float] = []
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins, in the running loop."""
        loop = asyncio.get_running_loop()
        self._watching = loop.create_task(self._watch())
        loop.add_signal_handler(signal.SIGUSR1, self._write)

    async def _watch(self) -> None:
        while True:
            due_s = time.perf_counter() + _PAUSE_S
            await asyncio.sleep(_PAUSE_S)
            self._late_s.append(time.perf_counter() - due_s)
            begun_s = time.thread_time()
            await asyncio.sleep(0)
            self._pass_cpu_s.append(time.thread_time() - begun_s)

    def _write(self) -> None:
        seen = {
            "pass_cpu_ms": [1000 * each for each in self._pass_cpu_s],
            "late_ms": [1000 * each for each in self._late_s],
        }
        partial = self._file.with_suffix(".tmp")
        partial.write_text(json.dumps(seen))
        partial.replace(self._file)
        self._pass_cpu_s.clear()
        self._late_s.clear()


class WatchedStack(Stack):
    """The suite with watched brokers."""

    async def seen(self) -> Mapping[str, Sequence[float]]:
        """What the first broker saw since the last time: `pass_cpu_ms` and `late_ms`."""
        file = self._seen_file(0)
        file.unlink(missing_ok=True)
        self.supervisor.child("broker-1").signal(signal.SIGUSR1)
        await eventually(file.exists, timeout_s=_ASK_S)
        found: Mapping[str, Sequence[float]] = json.loads(file.read_text())
        return found

    def _seen_file(self, number: int) -> Path:
        return self.settings.data_dir.resolve() / f"broker-{number + 1}.seen"

    def _broker_spec(self, number: int) -> ProcessSpec:
        spec = super()._broker_spec(number)
        own = str(Path(__file__).parent.parent)
        others = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        return replace(
            spec,
            argv=(
                sys.executable,
                "-m",
                "bench.loop_watch",
                str(self._seen_file(number)),
                spec.argv[-1],
            ),
            env={**spec.env, "PYTHONPATH": os.pathsep.join((own, *others))},
        )


def main() -> None:
    """Runs the broker."""
    watch = LoopWatch(Path(sys.argv[1]))
    make = uvloop.new_event_loop

    def watched() -> uvloop.Loop:
        loop = make()
        loop.call_soon(watch.start)
        return loop

    uvloop.new_event_loop = watched
    run_broker(sys.argv[2:])


if __name__ == "__main__":
    main()
