"""The syntax of Java properties."""

from pathlib import Path

import pytest
from aquifer_broker.config.properties import load_properties, parse_override, parse_properties
from aquifer_core.errors import InvalidConfigurationError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("# no\n! no\n\na=1", {"a": "1"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=one,\\\n   two", {"a": "one,two"}),
        ("a=c:\\\\dir\\\\x", {"a": "c:\\dir\\x"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a=\\u00e4\\t.", {"a": "ä\t."}),
        ("a=1\r\nb=2\r\n", {"a": "1", "b": "2"}),
        ("a=# no comment", {"a": "# no comment"}),
        ("a=1\\", {"a": "1"}),
        ("listeners=PLAINTEXT://:9092", {"listeners": "PLAINTEXT://:9092"}),
    ],
)
def test_a_text_means_what_java_reads(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_a_malformed_escape_is_refused() -> None:
    with pytest.raises(InvalidConfigurationError, match="uXXXX"):
        parse_properties("a=\\u12")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigurationError, match=r"none\.properties"):
        load_properties(tmp_path / "none.properties")


def test_an_override_is_split_at_the_first_equals_sign() -> None:
    assert parse_override("a = b=c") == ("a", "b=c")
    with pytest.raises(InvalidConfigurationError, match="key=value"):
        parse_override("a")
