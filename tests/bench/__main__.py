"""`make bench`: measures the suite and writes build/bench.json, one flat object of `area.figure: number`.

python -m bench [AREA ...]      all areas but `manager` by default; figures of other areas in the file are kept
python -m bench manager         takes about five minutes by itself
python -m bench manager.idle    one part of an area that has parts: cold_1p, cold_8p, cold_64p, latency, outages, backlog, idle

The file is written after every part. A part that fails is reported, the others go on, and the exit code is not zero.
"""

import argparse
import asyncio
import json
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from aquifer_rpc.log_setup import configure_logging
from aquifer_rpc.settings import LogLevel, LogSettings
from bench.e2e import measure as measure_e2e
from bench.kafka import measure as measure_kafka
from bench.manager import PARTS as MANAGER_PARTS
from bench.metadata import measure as measure_metadata
from bench.storage import measure as measure_storage
from rich.console import Console
from rich.table import Table

Measure = Callable[[], Awaitable[Mapping[str, float]]]

AREAS: dict[str, dict[str, Measure]] = {
    "e2e": {"": measure_e2e},
    "storage": {"": measure_storage},
    "metadata": {"": measure_metadata},
    "manager": dict(MANAGER_PARTS),
    "kafka": {"": measure_kafka},
}
"""The parts of each area; a part without name is the whole area."""
LONG = frozenset({"manager"})
"""Only measured when named, so that the others are through within ten minutes."""
OUTPUT = Path("build/bench.json")


def main() -> None:
    """Measures what is named.

    Raises:
        SystemExit: a part failed, or there is none of that name.
    """
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("area", nargs="*", metavar="AREA", help=", ".join(AREAS))
    names = parser.parse_args().area or [area for area in AREAS if area not in LONG]
    try:
        chosen = [part for name in names for part in _parts(name)]
    except KeyError as error:
        parser.error(f"there is no {error.args[0]}")
    configure_logging(LogSettings(level=LogLevel.ERROR), "bench")
    started = time.monotonic()
    figures: dict[str, float] = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else {}
    for area in AREAS.keys() & set(names):
        figures = {key: value for key, value in figures.items() if not key.startswith(f"{area}.")}
    failed = [label for label, measure in chosen if not _measured(label, measure, figures)]
    _show(figures)
    print(
        f"{len(figures)} figures in {OUTPUT} after {time.monotonic() - started:.0f} s",
        file=sys.stderr,
    )
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def _parts(name: str) -> Sequence[tuple[str, Measure]]:
    """The parts that `area` or `area.part` stands for, with their full names."""
    if name in AREAS:
        parts = AREAS[name]
        return [(f"{name}.{part}" if part else name, measure) for part, measure in parts.items()]
    area, _, part = name.partition(".")
    if not part or part not in AREAS.get(area, {}):
        raise KeyError(name)
    return [(name, AREAS[area][part])]


def _measured(label: str, measure: Measure, figures: dict[str, float]) -> bool:
    """Adds the figures of one part and writes all; False when it failed."""
    area = label.partition(".")[0]
    started = time.monotonic()
    try:
        found = asyncio.run(_run(measure))
    except Exception:
        traceback.print_exc()
        return False
    figures |= {_full(area, name): round(value, 4) for name, value in found.items()}
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(figures, indent=2, sort_keys=True) + "\n")
    print(f"{label}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    return True


def _full(area: str, name: str) -> str:
    """Name of a figure; some compare with another area and name that themselves."""
    return name if "." in name else f"{area}.{name}"


async def _run(measure: Measure) -> Mapping[str, float]:
    return await measure()


def _show(figures: Mapping[str, float]) -> None:
    table = Table("figure", "value", title="Aquifer, one run on this machine")
    for name in sorted(figures):
        table.add_row(name, f"{figures[name]:,.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
