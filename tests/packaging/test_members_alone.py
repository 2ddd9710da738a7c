"""Every module of a member can be imported where only its declared requirements, and theirs, are installed."""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires

import pytest
from fixtures.members import ROOT, Member, members
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# Hides what is installed besides; the modules to import come in as arguments after the allowed distributions.
_SCRIPT = """
import importlib, importlib.util, sys
from fixtures.members import distribution_of
allowed, modules = set(sys.argv[1].split(",")), sys.argv[2].split(",")
importlib.util.find_spec("encodings.idna")
distribution_of("warm_up")

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in sys.stdlib_module_names:
            return None
        owner = distribution_of(name)
        if owner is not None and owner not in allowed:
            raise ModuleNotFoundError(f"{name} is of {owner}, which is not declared", name=name)
        return None

sys.meta_path.insert(0, Hide())
for module in modules:
    importlib.import_module(module)
"""


def _installed_with(name: str) -> set[str]:
    """A member and everything that an installer brings along with it."""
    reached: set[tuple[str, str]] = set()
    waiting = [(name, "")]
    while waiting:
        current = waiting.pop()
        if current in reached:
            continue
        reached.add(current)
        distribution, extra = current
        for text in _requirements(distribution):
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                found = canonicalize_name(requirement.name)
                waiting += [(found, each) for each in ("", *requirement.extras)]
    return {distribution for distribution, _ in reached}


def _requirements(distribution: str) -> list[str]:
    if distribution in members():
        # From the file: what is installed may be older.
        return list(members()[distribution].specifiers)
    try:
        return requires(distribution) or []
    except PackageNotFoundError:
        return []


def _modules(member: Member) -> list[str]:
    """Every module but the migrations, which only a migration can run."""
    paths = sorted(
        path.relative_to(member.sources).with_suffix("")
        for path in member.sources.rglob("*.py")
        if "migrations" not in path.parts
    )
    return [".".join(path.parts).removesuffix(".__init__") for path in paths]


@pytest.mark.parametrize("name", sorted(members()))
def test_a_member_needs_nothing_but_what_it_declares(name: str) -> None:
    allowed, modules = _installed_with(name), _modules(members()[name])
    finished = subprocess.run(
        [sys.executable, "-c", _SCRIPT, ",".join(sorted(allowed)), ",".join(modules)],
        cwd=ROOT / "tests",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
