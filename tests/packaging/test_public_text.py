"""What is under version control says nothing about the machines it was made on."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures.members import ROOT, tracked_files

# Patterns are put together here, so that this file does not hold what it looks for.
_SLASH = "/"
_FORBIDDEN = {
    "registry address": re.compile(
        r"https?://[^\s/\"']*(?:pypi|pythonhosted|npmjs|artifactory|nexus|jfrog|mavencentral"
        r"|repo1\.maven|proxy\.golang)|--(?:extra-)?index-url|--trusted-host",
        re.IGNORECASE,
    ),
    "machine path": re.compile(
        rf"(?<![\w.\-}}]){_SLASH}(?:work|home|root|Users){_SLASH}\w|[A-Z]:\\Users\\"
    ),
    "private key": re.compile(r"-----BEGIN [A-Z ]*" + r"PRIVATE KEY-----\s+[A-Za-z0-9+/=]{40}"),
    "access key": re.compile(
        r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[pousr]_\w{36}\b|\bxox[abpr]-[\w-]{10}"
    ),
    "password in an address": re.compile(
        r"\w+://[^\s:/@\"'{}$<>]+:(?!password@|secret@)[^\s:/@\"'{}$<>]+@(?!127\.0\.0\.1|localhost)\w"
    ),
}


def _findings(kind: str) -> Iterator[str]:
    for path in tracked_files():
        if path == Path(__file__).resolve():
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for match in _FORBIDDEN[kind].finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path.relative_to(ROOT)}:{line}: {match[0]}"


@pytest.mark.parametrize("kind", sorted(_FORBIDDEN))
def test_no_tracked_file_holds(kind: str) -> None:
    assert list(_findings(kind)) == []


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("registry address", "https://" + "files.pythonhosted.org/x"),
        ("registry address", "pip install --index" + "-url x"),
        ("machine path", "see " + _SLASH + "home/me/x"),
        ("private key", "-----BEGIN EC " + "PRIVATE KEY-----\n" + "A" * 64),
        ("access key", "AK" + "IA" + "ABCDEFGHIJKLMNOP"),
        ("password in an address", "postgresql://app:" + "hunter2@db.example.com/x"),
    ],
)
def test_the_patterns_find_what_they_are_for(kind: str, text: str) -> None:
    assert _FORBIDDEN[kind].search(text)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("machine path", "services/storage/src"),
        ("machine path", "${HOME}/work/x"),
        ("password in an address", "postgresql://user:password@host:5432/db"),
        ("password in an address", "postgresql://aquifer:${AQUIFER_POSTGRES_PASSWORD}@postgres/x"),
        ("password in an address", "http://otel-collector:4317"),
    ],
)
def test_the_patterns_let_other_text_be(kind: str, text: str) -> None:
    assert not _FORBIDDEN[kind].search(text)
