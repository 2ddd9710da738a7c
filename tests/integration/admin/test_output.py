"""An answer that cannot be written is a failure of one line, as any other."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

_FULL = Path("/dev/full")


async def status(stdout: int, *options: str) -> tuple[int | None, str]:
    """Exit code and standard error of `aquifer status` where nobody is."""
    nobody = [f"--{role}=127.0.0.1:1" for role in ("metadata", "manager", "storage")]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aquifer_admin", "status", *nobody, *options),
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()
    return process.returncode, err.decode()


@pytest.mark.skipif(not _FULL.exists(), reason="no device that is always full")
@pytest.mark.parametrize("options", [(), ("--json",)])
async def test_a_full_disk_is_told(options: tuple[str, ...]) -> None:
    full = os.open(_FULL, os.O_WRONLY)
    try:
        code, err = await status(full, *options)
    finally:
        os.close(full)
    assert (code, err) == (1, "aquifer: standard output: No space left on device\n")


async def test_a_pipe_that_nobody_reads_is_no_complaint() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        code, err = await status(writing, "--json")
    finally:
        os.close(writing)
    assert (code, err) == (1, "")
