"""Prints what members need from outside the project, for an image layer that changes only with their pyproject.toml.

python deploy/docker/third_party.py protos libs/core libs/rpc services/storage
"""

import re
import sys
import tomllib
from pathlib import Path

_OURS = "aquifer-"


def third_party(members: list[Path]) -> list[str]:
    """Requirements of members that no member satisfies, sorted.

    Raises:
        ValueError: a member needs another member that is not given.
    """
    projects = [tomllib.loads((each / "pyproject.toml").read_text())["project"] for each in members]
    names = {project["name"] for project in projects}
    needed = {text for project in projects for text in project["dependencies"]}
    ours = {text for text in needed if text.startswith(_OURS)}
    missing = {re.split(r"[ \[<>=!~;]", text)[0] for text in ours} - names
    if missing:
        raise ValueError(f"give the folders of {', '.join(sorted(missing))} too")
    return sorted(needed - ours)


if __name__ == "__main__":
    sys.stdout.write("\n".join(third_party([Path(each) for each in sys.argv[1:]])) + "\n")
