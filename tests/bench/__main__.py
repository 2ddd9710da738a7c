"""`make bench`: measures the suite and writes build/bench.json, one flat object of `area.figure: number`.

python -m bench [AREA ...]      all areas but `manager` by default; figures of other areas in the file are kept
python -m bench manager         takes about five minutes by itself
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from aquifer_rpc.log_setup import configure_logging
from aquifer_rpc.settings import LogLevel, LogSettings
from bench.e2e import measure as measure_e2e
from bench.kafka import measure as measure_kafka
from bench.manager import measure as measure_manager
from bench.metadata import measure as measure_metadata
from bench.storage import measure as measure_storage
from rich.console import Console
from rich.table import Table

Measure = Callable[[], Awaitable[Mapping[str, float]]]

AREAS: dict[str, Measure] = {
    "e2e": measure_e2e,
    "storage": measure_storage,
    "metadata": measure_metadata,
    "manager": measure_manager,
    "kafka": measure_kafka,
}
LONG = frozenset({"manager"})
"""Only measured when named, so that the others are through within ten minutes."""
OUTPUT = Path("build/bench.json")


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("area", nargs="*", metavar="AREA", help=", ".join(AREAS))
    areas = parser.parse_args().area or [area for area in AREAS if area not in LONG]
    configure_logging(LogSettings(level=LogLevel.ERROR), "bench")
    started = time.monotonic()
    figures: dict[str, float] = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else {}
    for area in areas:
        figures = {key: value for key, value in figures.items() if not key.startswith(f"{area}.")}
        measured = asyncio.run(_run(AREAS[area]))
        figures |= {_full(area, name): round(value, 4) for name, value in measured.items()}
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(figures, indent=2, sort_keys=True) + "\n")
    _show(figures)
    print(
        f"{len(figures)} figures in {OUTPUT} after {time.monotonic() - started:.0f} s",
        file=sys.stderr,
    )


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
