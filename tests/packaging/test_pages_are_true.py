"""What the pages for people name exists: links, commands, options, variables, keys, metrics, log events."""

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from aquifer_admin.cli import app
from aquifer_broker.config.broker_config import BrokerConfig
from aquifer_broker.config.broker_keys import BROKER_DEFINITIONS
from aquifer_broker.config.remote_keys import STORAGE_PREFIX
from aquifer_broker.tiering.plugin_properties import plugin_properties
from aquifer_client import RemoteRoleConfig
from aquifer_manager.settings import ManagerSettings
from aquifer_metadata.settings import MetadataSettings
from aquifer_rpc import semconv
from aquifer_rpc.environment import refuse_unknown_variables
from aquifer_storage.settings import StorageSettings
from fixtures.members import ROOT, tracked_files

_PAGES = [path for path in tracked_files() if path.suffix == ".md" and path.name != "CHANGELOG.md"]
_SETTINGS = {
    "AQUIFER_STORAGE_": StorageSettings,
    "AQUIFER_METADATA_": MetadataSettings,
    "AQUIFER_MANAGER_": ManagerSettings,
}
_OPERATIONS = ROOT / "docs/operations.md"

every_page = pytest.mark.parametrize(
    "page", _PAGES, ids=[str(path.relative_to(ROOT)) for path in _PAGES]
)


def _code(page: Path) -> Iterator[str]:
    """Everything of a page that is set as code, a line at a time, without comments."""
    text = page.read_text()
    for block in re.findall(r"^```[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            yield re.split(r"\s#|\s{3,}", line, maxsplit=1)[0].strip()
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@every_page
def test_its_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        found = (page.parent / name).resolve() if name else page
        assert found.exists(), target
        assert not anchor or anchor in _anchors(found), target


@every_page
def test_its_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for code in _code(page):
        for target in re.findall(r"(?:^|[ ;(])make ([a-z][\w-]*)", code):
            assert target in targets, code


def test_make_alone_lists_every_target_that_is_for_people() -> None:
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    explained = re.findall(r"^([\w-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert re.findall(r"^  ([\w-]+) ", shown, re.MULTILINE) == explained


def test_the_front_page_says_what_this_does_not_replace() -> None:
    """SR-38."""
    assert "Not a replacement for ETL pipelines" in (ROOT / "README.md").read_text()


@every_page
def test_its_variables_are_settings(page: Path) -> None:
    for name in set(re.findall(r"\bAQUIFER_[A-Z][A-Z0-9_]*[A-Z0-9](?!_?[\w*<])", page.read_text())):
        for prefix, settings in _SETTINGS.items():
            if name.startswith(prefix):
                refuse_unknown_variables(settings, prefix, {name: ""})


@cache
def _command(*names: str) -> Any:
    """A command or group of `aquifer`, as typer makes them."""
    found: Any = typer.main.get_command(app)
    for name in names:
        found = found.commands[name]
    return found


def _commands_below(name: str) -> list[str]:
    """Names below a group; of a command the empty one."""
    return sorted(getattr(_command(name), "commands", [""]))


def _called(code: str) -> tuple[list[str], list[str]] | None:
    """Names of the commands and the options of a line that calls `aquifer`; None: it does not."""
    if not code.startswith("aquifer ") and not code.startswith("docker compose run --rm admin "):
        return None
    words = re.sub(r"^(aquifer|docker compose run --rm admin) ", "", code)
    names = re.match(r"(?:[a-z][a-z-]*(?:\|[a-z-]+)*\s?){0,2}", words)
    assert names is not None
    return names[0].split(), re.findall(r"--[a-z-]+", words)


@every_page
def test_its_aquifer_commands_and_their_options_exist(page: Path) -> None:
    for code in _code(page):
        if (called := _called(code)) is None:
            continue
        (first, *rest), options = called
        leaves = rest[0].split("|") if rest and "" not in _commands_below(first) else [""]
        for leaf in leaves:
            command = _command(first, leaf) if leaf else _command(first)
            known = {option for each in command.params for option in each.opts}
            assert set(options) <= known, code


def test_the_readme_of_the_command_shows_every_command() -> None:
    shown = "\n".join(_code(ROOT / "clients/admin/README.md"))
    for name in _command().commands:
        for leaf in _commands_below(name):
            assert re.search(rf"aquifer {name} ?([\w-]+\|)*{leaf}(?![\w-])", shown), (
                f"{name} {leaf}"
            )


def test_the_least_properties_of_a_broker_are_accepted() -> None:
    """Those without tiering, and with it."""
    blocks = re.findall(
        r"^```\n(\w[\w.]+=.*?)^```", (ROOT / "clients/broker/README.md").read_text(), re.M | re.S
    )
    least, tiering = (dict(line.split("=", 1) for line in text.splitlines()) for text in blocks)
    for properties in (least, least | tiering):
        assert BrokerConfig.parse(properties).unknown_keys == ()
    configs = BrokerConfig.parse(least | tiering).storage_manager_configs("cluster")
    RemoteRoleConfig.parse(plugin_properties(configs, STORAGE_PREFIX))


def test_metrics_and_keys_that_operators_are_told_of_exist() -> None:
    known = {value.name for value in vars(semconv).values() if isinstance(value, semconv.Metric)}
    known |= set(re.findall(r'"(db\.client\.[\w.]+)"', _source("services/metadata")))
    known |= {definition.name for definition in BROKER_DEFINITIONS}
    known |= set(_code(ROOT / "clients/kafka-plugin/README.md"))
    for name in re.findall(r"`((?:aquifer|db)\.[\w.*]+)", _OPERATIONS.read_text()):
        pattern = re.escape(name).replace(r"\*", ".*")
        assert any(re.fullmatch(pattern, each) for each in known), name


def test_log_events_that_operators_are_told_of_are_logged() -> None:
    source = " ".join(_source(folder) for folder in ("clients", "services", "libs"))
    for name in re.findall(r"`((?:log|loop|tls|remote)_[a-z_]+)`", _OPERATIONS.read_text()):
        assert f'"{name}"' in source, name


@cache
def _source(folder: str) -> str:
    files = [path for path in tracked_files() if path.suffix == ".py"]
    return "\n".join(path.read_text() for path in files if (ROOT / folder) in path.parents)
