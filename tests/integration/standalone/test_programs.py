"""Programs that run to their end, and what is made once for them."""

import sys
from pathlib import Path

import pytest
from aquifer_standalone.kept_text import kept_text
from aquifer_standalone.programs import run_program

WRITES_BOTH = "import sys; print('out', flush=True); print('wrong', file=sys.stderr); sys.exit(3)"


def still_running(folder: Path) -> list[str]:
    """Ids of the processes that wrote theirs into a folder; none did on a machine too busy to start an interpreter in time."""
    pids = [path.read_text() for path in folder.glob("pid")]
    return [pid for pid in pids if pid and Path(f"/proc/{pid}").exists()]


async def test_a_failure_tells_its_exit_code_and_the_last_that_was_written() -> None:
    ended = await run_program([sys.executable, "-c", WRITES_BOTH], timeout_s=60)
    assert (ended.exit_code, ended.output, ended.errors) == (3, b"out\nwrong\n", b"")
    apart = await run_program([sys.executable, "-c", WRITES_BOTH], timeout_s=60, errors_apart=True)
    assert (apart.output, apart.errors, apart.tail) == (b"out\n", b"wrong\n", "wrong\n")


async def test_output_may_go_to_a_file(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        ended = await run_program(
            [sys.executable, "-c", "print('here')"], timeout_s=60, output=file, cwd=tmp_path
        )
    assert ended.output == b""
    assert (tmp_path / "out").read_text() == "here\n"


async def test_a_program_that_takes_too_long_is_gone_when_its_caller_is_told(
    tmp_path: Path,
) -> None:
    endless = "import os; open('pid', 'w').write(str(os.getpid()))\nwhile True: pass"
    with pytest.raises(TimeoutError):
        await run_program([sys.executable, "-c", endless], timeout_s=3, cwd=tmp_path)
    assert not still_running(tmp_path)


def test_a_kept_text_is_made_once_whole_and_for_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    # What a crash in the middle of the first attempt leaves.
    (tmp_path / "secret.new").write_text("")
    assert kept_text(file, lambda: "first") == "first"
    assert kept_text(file, lambda: "second") == "first"
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]
