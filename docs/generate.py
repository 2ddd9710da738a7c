"""Writes the generated pages of docs/.

python docs/generate.py            writes
python docs/generate.py --check    fails when a page is out of date or a requirement said to be met has no test
"""

import argparse
import csv
import re
import sys
from collections import defaultdict
from collections.abc import Callable

from generators.configuration import configuration_page
from generators.page import DOCS, MARK, ROOT
from generators.telemetry import telemetry_page

_STATES = ("done", "partly", "later")


def requirements_page() -> str:
    """Requirement by requirement, which tests cite it.

    Raises:
        SystemExit: a requirement said to be met has no test.
    """
    tests = _tests_by_requirement()
    rows, missing = [], []
    with (DOCS / "requirements.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["state"] not in _STATES:
                sys.exit(
                    f"docs/requirements.csv: {row['id']}: state {row['state']!r} is none of {_STATES}"
                )
            cited = tests.get(row["id"], [])
            if row["state"] != "later" and not cited:
                missing.append(row["id"])
            state = row["state"] + (f": {row['note']}" if row["note"] else "")
            rows.append(f"| {row['id']} | {row['requirement']} | {state} | {', '.join(cited)} |")
    if missing:
        sys.exit(f"no test cites {', '.join(missing)}; docs/requirements.csv says they are met")
    head = "# Requirements\n\n| | requirement | state | tests |\n|---|---|---|---|\n"
    return MARK + head + "\n".join(rows) + "\n"


def _tests_by_requirement() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        cited = set(re.findall(r"\bSR-\d+\b", path.read_text()))
        for requirement in cited:
            name = path.relative_to(ROOT / "tests")
            found[requirement].append(f"[{name}](../tests/{name})")
    return found


def errors_page() -> str:
    """Every error reason with its documentation from the contract."""
    text = (ROOT / "protos/aquifer/errors/v1/error_reason.proto").read_text()
    entries = re.findall(r"((?:  //.*\n)+)  ERROR_REASON_([A-Z_]+) = (\d+);", text)
    lines = [
        f"| `{name}` | {' '.join(part.strip('/ ') for part in comment.splitlines())} |"
        for comment, name, number in entries
        if number != "0"
    ]
    head = "# Error reasons\n\nSent as `google.rpc.ErrorInfo.reason` in the domain `aquifer`.\n\n"
    return MARK + head + "| reason | meaning and remedy |\n|---|---|\n" + "\n".join(lines) + "\n"


def why_page() -> str:
    """Every answer of `aquifer why` with its documentation from the contract."""
    text = (ROOT / "protos/aquifer/manager/v1/remote_log_manager_service.proto").read_text()
    entries = re.findall(r"((?:  //.*\n)+)  WHY_REASON_([A-Z_]+) = (\d+);", text)
    lines = [
        f"| `{name}` | {' '.join(part.strip('/ ') for part in comment.splitlines())} |"
        for comment, name, number in entries
        if number != "0"
    ]
    head = (
        "# Answers of `aquifer why`\n\n"
        "Why a segment is still local, not yet deleted, or unreadable (`Explanation.reason`).\n\n"
    )
    return MARK + head + "| reason | meaning and remedy |\n|---|---|\n" + "\n".join(lines) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "reference/configuration.md": configuration_page,
    "reference/errors.md": errors_page,
    "reference/telemetry.md": telemetry_page,
    "reference/why.md": why_page,
    "requirements.md": requirements_page,
}


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args().check
    for name, page in PAGES.items():
        path, text = DOCS / name, page()
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            sys.exit(f"{path.relative_to(ROOT)} is out of date, run `make docs`")


if __name__ == "__main__":
    main()
