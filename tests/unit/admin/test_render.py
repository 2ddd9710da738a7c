"""Tables, JSON and the words for numbers."""

import json
from typing import Any

import pytest
from aquifer_admin import documents
from aquifer_admin.render import (
    Column,
    Report,
    as_bytes,
    as_duration,
    as_text,
    as_time,
    details,
    emit,
    progress_by_bytes,
    stacked,
    table,
)

_COLUMNS = (
    Column(key="topic", header="TOPIC"),
    Column(key="size_bytes", header="SIZE", show=as_bytes, justify="right"),
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536 * 1024, "1.5 MiB"),
        (3 << 50, "3.0 PiB"),
        (5 << 62, "20480.0 PiB"),
    ],
)
def test_bytes_are_shown_in_the_largest_unit_that_fits(value: int | None, text: str) -> None:
    assert as_bytes(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0ms"),
        (999, "999ms"),
        (12_500, "12.5s"),
        (200_000, "3m20s"),
        (3_600_000, "1h0m"),
        (18_600_000, "5h10m"),
        (183_600_000, "2d3h"),
    ],
)
def test_durations_are_shown_in_two_units(value: int | None, text: str) -> None:
    assert as_duration(value) == text


def test_times_are_utc_with_milliseconds() -> None:
    assert as_time(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert as_time(None) == "-"


def test_a_time_that_no_calendar_has_is_shown_as_its_number() -> None:
    assert as_time(2**62) == str(2**62)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (True, "yes"),
        ([1, 2], "1,2"),
        ([], "-"),
        ({"a": 1, "b": None}, "a=1 b=-"),
        ({}, "-"),
        ("text", "text"),
    ],
)
def test_every_kind_of_value_has_a_text(value: Any, text: str) -> None:
    assert as_text(value) == text


def test_a_report_is_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[documents.Document] = [
        {"topic": "orders", "size_bytes": 2048},
        {"topic": "a[bold]b", "size_bytes": None},
    ]
    body = stacked(table("Topics", _COLUMNS, rows), details("First", _COLUMNS, rows[0]))
    emit(Report(document={}, body=body), as_json=False)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "Topics",
        "TOPIC        SIZE",
        "orders    2.0 KiB",
        "a[bold]b        -",
        "",
        "First",
        "TOPIC  orders",
        "SIZE   2.0 KiB",
    ]


def test_brackets_in_titles_and_texts_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Rich would take `[fe80::1]` for markup and leave it out, and fail on `[/tmp]`."""
    rows: list[documents.Document] = [{"topic": "a-topic-of-some-length", "size_bytes": 1}]
    body = stacked(
        table("At [fe80::1]:7200", _COLUMNS, rows, caption="in [/tmp]"),
        details("Of [a]", _COLUMNS, rows[0]),
        "Down: metadata at [fe80::1]:7200.",
    )
    emit(Report(document={}, body=body), as_json=False)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "At [fe80::1]:7200"
    assert lines[3] == "in [/tmp]"
    assert lines[5] == "Of [a]"
    assert lines[-1] == "Down: metadata at [fe80::1]:7200."


def test_a_table_without_rows_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    emit(Report(document={}, body=table("Topics", _COLUMNS, [])), as_json=False)
    assert capsys.readouterr().out == "Topics: none\n"


def test_a_report_is_one_document_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    document = {"topics": [{"topic": "a\nb", "size_bytes": 1}]}
    emit(Report(document=document, body="never shown"), as_json=True)
    assert json.loads(capsys.readouterr().out) == document


def test_long_lines_are_not_cut_when_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"topic": "t" * 150, "size_bytes": 1}]
    emit(Report(document={}, body=table("Topics", _COLUMNS, rows)), as_json=False)
    assert "t" * 150 in capsys.readouterr().out


def test_only_columns_for_long_texts_are_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    columns = (*_COLUMNS, Column(key="error", header="ERROR", wraps=True))
    rows = [{"topic": "t" * 150, "size_bytes": 1, "error": "why " * 100}]
    emit(Report(document={}, body=table("Topics", columns, rows)), as_json=False)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[2].startswith("t" * 150 + "   1 B  why why")
    assert lines[3].startswith(" " * 150)
    assert all(len(line) <= 240 for line in lines)


def test_what_may_not_be_wrapped_makes_a_table_as_wide_as_it_must_be(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [{"topic": "t" * 300, "size_bytes": 1}]
    emit(Report(document={}, body=table("Topics", _COLUMNS, rows)), as_json=False)
    assert "t" * 300 + "   1 B" in capsys.readouterr().out


def test_progress_is_silent_when_standard_error_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress_by_bytes() as progress:
        bar = progress.add_task("verifying", total=10)
        progress.advance(bar, 10)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")
