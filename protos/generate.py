"""Generates the typed Python of the contracts; the only caller of protoc.

python protos/generate.py            writes gen/python
python protos/generate.py --check    fails when gen/python is not what the contracts say
"""

import argparse
import filecmp
import shutil
import sys
import tempfile
from pathlib import Path

import grpc_tools  # type: ignore[import-untyped]
from grpc_tools import protoc

ROOT = Path(__file__).parent
OUTPUT = ROOT / "gen" / "python"


def generate(output: Path) -> None:
    """Writes the generated package below `output`."""
    protos = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("aquifer/**/*.proto"))
    include = Path(grpc_tools.__file__).parent / "_proto"
    code = protoc.main(
        [
            "protoc",
            f"-I{ROOT}",
            f"-I{include}",
            f"--python_out={output}",
            f"--grpc_python_out={output}",
            f"--mypy_out={output}",
            f"--mypy_grpc_out={output}",
            *protos,
        ]
    )
    if code != 0:
        sys.exit(f"protoc failed with {code}")
    (output / "aquifer" / "py.typed").touch()


def differences(left: Path, right: Path) -> list[str]:
    """Relative names of files that differ between two trees."""
    names = {
        str(path.relative_to(root))
        for root in (left, right)
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    _, changed, missing = filecmp.cmpfiles(left, right, sorted(names), shallow=False)
    return sorted(changed + missing)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        generate(fresh)
        if check:
            changed = differences(OUTPUT, fresh)
            if changed:
                sys.exit("generated code is out of date, run `make protos`: " + ", ".join(changed))
            return
        shutil.rmtree(OUTPUT, ignore_errors=True)
        shutil.copytree(fresh, OUTPUT)


if __name__ == "__main__":
    main()
