"""Every image is made the same way: two stages, pinned base, exactly its members, nobody's root."""

import json
import re
from pathlib import Path

import pytest
from fixtures.members import ROOT, closure, members

_IMAGES = sorted(path.parent for path in ROOT.glob("*/*/Dockerfile"))
_IDS = [str(path.relative_to(ROOT)) for path in _IMAGES]


def _instructions(folder: Path) -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", " ", (folder / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def _values(folder: Path, instruction: str) -> list[str]:
    return [rest for word, rest in _instructions(folder) if word == instruction]


def _member_of(folder: Path) -> str:
    wanted = str(folder.relative_to(ROOT))
    return next(member.name for member in members().values() if member.folder == wanted)


def test_every_process_of_the_suite_has_an_image() -> None:
    assert set(_IDS) == {
        "clients/admin",
        "clients/broker",
        "services/manager",
        "services/metadata",
        "services/storage",
    }


@pytest.mark.parametrize("folder", _IMAGES, ids=_IDS)
def test_the_base_is_pinned_and_the_same_for_all(folder: Path) -> None:
    stages = _values(folder, "FROM")
    assert len(stages) == 2
    bases = {stage.split()[0] for path in _IMAGES for stage in _values(path, "FROM")}
    assert len(bases) == 1
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+", bases.pop())


@pytest.mark.parametrize("folder", _IMAGES, ids=_IDS)
def test_an_image_holds_its_member_and_what_that_needs(folder: Path) -> None:
    needed = {members()[name].folder for name in closure(_member_of(folder))}
    copied = {text.split()[0] for text in _values(folder, "COPY") if not text.startswith("--")}
    assert copied - {"constraints.txt", "deploy/docker/third_party.py"} == needed | {
        f"{member}/pyproject.toml" for member in needed
    }
    [third_party, wheels] = [text for text in _values(folder, "RUN") if "protos" in text]
    assert set(re.search(r"third_party\.py (.*?) >", third_party)[1].split()) == needed  # type: ignore[index]
    assert {each.removeprefix("./") for each in wheels.split() if each.startswith("./")} == needed


@pytest.mark.parametrize("folder", _IMAGES, ids=_IDS)
def test_nothing_but_the_last_lines_differs_between_images(folder: Path) -> None:
    def shape(path: Path) -> list[str]:
        lines = [f"{word} {rest}" for word, rest in _instructions(path)]
        common = lines[: lines.index("WORKDIR /var/lib/aquifer") + 1]
        return [
            line for line in common if "protos" not in line and not re.match("COPY [a-z]", line)
        ]

    assert shape(folder) == shape(_IMAGES[0])


@pytest.mark.parametrize("folder", _IMAGES, ids=_IDS)
def test_the_process_is_the_members_command_and_not_root(folder: Path) -> None:
    assert _values(folder, "USER") == ["aquifer"]
    [entry_point] = _values(folder, "ENTRYPOINT")
    assert json.loads(entry_point)[0] in members()[_member_of(folder)].scripts


@pytest.mark.parametrize("folder", _IMAGES, ids=_IDS)
def test_every_server_has_a_health_check(folder: Path) -> None:
    [check] = _values(folder, "HEALTHCHECK")
    if folder.name == "admin":
        assert check == "NONE"
        return
    command = json.loads(check[check.index("CMD") + 3 :])
    assert command[:3] == ["python", "-m", "aquifer_rpc.health_check"]
    port = command[3].rpartition(":")[2]
    assert port in _values(folder, "EXPOSE")[0].split()


@pytest.mark.parametrize("folder", _IMAGES, ids=_IDS)
def test_the_build_context_has_what_is_copied(folder: Path) -> None:
    """`.dockerignore` lets through what it names after an exclamation mark."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = [line.removeprefix("!") for line in lines if line.startswith("!")]
    for text in _values(folder, "COPY"):
        if text.startswith("--"):
            continue
        source = text.split()[0]
        assert (ROOT / source).exists(), source
        assert any(source == each or source.startswith(f"{each}/") for each in allowed), source
