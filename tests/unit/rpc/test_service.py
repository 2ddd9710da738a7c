import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import asyncio, sys
from aquifer_rpc.service import run_service
from aquifer_rpc.settings import ServiceSettings
from aquifer_core.errors import InvalidConfigurationError

async def main(settings):
    print(type(asyncio.get_running_loop()).__module__)
    if "fail" in sys.argv:
        raise RuntimeError("unforeseen")
    if "refuse" in sys.argv:
        raise InvalidConfigurationError("key: say what")

arguments = [a for a in sys.argv[1:] if a.startswith("--")]
run_service("aquifer-rpc", ServiceSettings, "AQUIFER_UNIT_", main, argv=arguments)
"""


def run(tmp_path: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "service.py"
    script.write_text(SCRIPT)
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_service_runs_on_uvloop_where_it_is_installed(tmp_path: Path) -> None:
    done = run(tmp_path)

    assert (done.returncode, done.stdout) == (0, "uvloop\n")


def test_a_misspelt_setting_ends_with_code_2_and_one_line(tmp_path: Path) -> None:
    done = run(tmp_path, AQUIFER_UNIT_LOG__LEVLE="info")

    assert done.returncode == 2
    assert done.stderr == (
        "aquifer-rpc: AQUIFER_UNIT_LOG__LEVLE is not a setting; "
        "did you mean AQUIFER_UNIT_LOG__LEVEL?\n"
    )


def test_a_setting_refused_later_ends_the_same_way(tmp_path: Path) -> None:
    done = run(tmp_path, "refuse")

    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "aquifer-rpc: key: say what"
    assert "Traceback" not in done.stderr


def test_an_unforeseen_failure_ends_with_code_1_and_its_traceback(tmp_path: Path) -> None:
    done = run(tmp_path, "fail", AQUIFER_UNIT_LOG__FORMAT="json")

    assert done.returncode == 1
    assert '"event": "service_failed"' in done.stderr
    assert "RuntimeError: unforeseen" in done.stderr


def test_version_and_help_are_answered(tmp_path: Path) -> None:
    assert run(tmp_path, "--version").stdout.startswith("aquifer-rpc 0.")
    assert "AQUIFER_UNIT_" in run(tmp_path, "--help").stdout
    assert run(tmp_path, "--nonsense").returncode == 2
