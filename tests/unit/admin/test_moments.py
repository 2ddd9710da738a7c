"""Times on the command line."""

import pytest
import typer
from aquifer_admin.moments import moment_ms


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01", 1_000),
        ("1970-01-01T00:00:01.234Z", 1_234),
        ("1970-01-01T01:00:00+01:00", 0),
    ],
)
def test_a_time_without_an_offset_is_utc(text: str, expected_ms: int) -> None:
    assert moment_ms(text) == expected_ms


def test_what_is_no_time_is_refused_with_an_example() -> None:
    with pytest.raises(typer.BadParameter, match="2027-03-01T12:00:00Z"):
        moment_ms("yesterday")
