"""Tables for people, one JSON document for programs, progress bars on standard error."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from aquifer_admin.documents import Document

__all__ = ["Column", "OutputError", "Report", "details", "emit", "progress_by_bytes", "table"]

# What is piped must not be wrapped at the width of a terminal that is not there.
_WIDTH_WITHOUT_TERMINAL = 240
_WIDTH_UNBOUNDED = 100_000

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class OutputError(Exception):
    """The answer cannot be written to where it should go; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a command says: the document, the same for people, and the exit code."""

    document: Document
    body: RenderableType
    exit_code: int = 0


def as_text(value: Any) -> str:
    """Any value of a document."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(as_text(each) for each in value) or "-"
    if isinstance(value, dict):
        return " ".join(f"{key}={as_text(each)}" for key, each in value.items()) or "-"
    return str(value)


def as_bytes(value: int | None) -> str:
    """`12.3 MiB`."""
    if value is None:
        return "-"
    amount, unit = float(value), 0
    while abs(amount) >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.0f} B" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def as_duration(value_ms: int | None) -> str:
    """`850ms`, `12.5s`, `3m20s`, `5h10m`, `2d3h`."""
    if value_ms is None:
        return "-"
    if value_ms < 1000:
        return f"{value_ms}ms"
    seconds = value_ms / 1000
    if seconds < 60:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    for size, name, below, below_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "m")):
        if whole >= size:
            return f"{whole // size}{name}{whole % size // below}{below_name}"
    return f"{whole // 60}m{whole % 60}s"


def as_time(value_ms: int | None) -> str:
    """UTC in ISO 8601 with milliseconds."""
    if value_ms is None:
        return "-"
    try:
        moment = datetime.fromtimestamp(value_ms / 1000, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return str(value_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table: a field of the rows' documents, and how it is shown.

    Attributes:
        wraps: for long texts; other columns stay in one line, also where the terminal is too narrow for the table.
        bad: values to be marked.
    """

    key: str
    header: str
    show: Callable[[Any], str] = as_text
    justify: Literal["left", "right"] = "left"
    wraps: bool = False
    bad: Callable[[Any], bool] = field(default=lambda _: False)


def table(
    title: str, columns: Sequence[Column], rows: Sequence[Document], *, caption: str | None = None
) -> RenderableType:
    """One line per row; `none` when there is none."""
    if not rows:
        return Text(f"{title}: none")
    made = Table(
        title=Text(title, style="table.title"),
        title_justify="left",
        caption=None if caption is None else Text(caption, style="table.caption"),
        caption_justify="left",
        header_style="bold",
        box=None,
        pad_edge=False,
    )
    cells = [[_cell(column, row[column.key]) for column in columns] for row in rows]
    for number, column in enumerate(columns):
        widest = max(cell_len(column.header), *(row[number].cell_len for row in cells))
        made.add_column(
            column.header,
            justify=column.justify,
            overflow="fold",
            # Columns whose width is given are not measured cell by cell, which takes half of the time of a long table.
            width=None if column.wraps else widest,
            no_wrap=not column.wraps,
        )
    for row in cells:
        made.add_row(*row)
    return made


def details(title: str, columns: Sequence[Column], document: Document) -> RenderableType:
    """One line per field."""
    made = Table(
        title=Text(title, style="table.title"),
        title_justify="left",
        show_header=False,
        box=None,
        pad_edge=False,
    )
    made.add_column(style="bold")
    made.add_column(overflow="fold")
    for column in columns:
        made.add_row(column.header, _cell(column, document[column.key]))
    return made


def stacked(*parts: RenderableType) -> RenderableType:
    """Parts under each other, with an empty line between; in a text, brackets are brackets and no markup."""
    spaced: list[RenderableType] = []
    for part in parts:
        spaced.extend((Text(part) if isinstance(part, str) else part, Text()))
    return Group(*spaced[:-1])


def emit(report: Report, *, as_json: bool) -> None:
    """Writes a report to standard output.

    Raises:
        BrokenPipeError: nobody reads what is piped; the library of commands ends with 1 and is silent about it.
        OutputError: it takes no more.
    """
    try:
        _write(report, as_json=as_json)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"standard output: {error.strerror or error}") from error


def _write(report: Report, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report.document, indent=2))
        return
    console = _console(stderr=False)
    unbounded = console.options.update(max_width=_WIDTH_UNBOUNDED)
    needed = Measurement.get(console, unbounded, report.body).minimum
    console.width = max(console.width, needed)
    console.print(report.body)


def progress_by_bytes() -> AbstractContextManager[Progress]:
    """A progress bar on standard error; invisible when that is no terminal."""
    return _progress(DownloadColumn(binary_units=True), TransferSpeedColumn())


def progress_by_count() -> AbstractContextManager[Progress]:
    """A progress bar of things done on standard error; invisible when that is no terminal."""
    return _progress(MofNCompleteColumn())


@contextmanager
def _progress(*amounts: ProgressColumn) -> Iterator[Progress]:
    console = _console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), *amounts, TimeRemainingColumn())
    disable = not console.is_terminal
    with Progress(*columns, console=console, disable=disable, transient=True) as progress:
        yield progress


def _cell(column: Column, value: Any) -> Text:
    return Text(column.show(value), style="bold red" if column.bad(value) else "")


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _WIDTH_WITHOUT_TERMINAL
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)
