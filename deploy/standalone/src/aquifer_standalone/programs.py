"""Programs that run to their end, within a time."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

__all__ = ["Ended", "run_program"]

_TAIL_BYTES: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended.

    Attributes:
        exit_code: 0 is success; negative: the signal that ended it.
        output: standard output, with standard error in between when that was not apart; empty when it went to a file.
        errors: standard error, when it was apart.
    """

    exit_code: int
    output: bytes
    errors: bytes

    @property
    def tail(self) -> str:
        """The last of what it wrote, errors first; to say why it failed."""
        return (self.errors or self.output).decode(errors="replace")[-_TAIL_BYTES:]


async def run_program(
    argv: Sequence[str],
    *,
    timeout_s: float,
    cwd: Path | None = None,
    output: IO[bytes] | None = None,
    errors_apart: bool = False,
) -> Ended:
    """Runs a program without input and waits for its end; it is killed when the caller stops waiting.

    Args:
        argv: the program and its arguments.
        timeout_s: the longest it may take.
        cwd: its directory; None: this process's.
        output: where its standard output goes; None: into the answer.
        errors_apart: keeps standard error out of the output.

    Raises:
        TimeoutError: it did not end in time.
    """
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=pipe if output is None else output,
        stderr=pipe if errors_apart else asyncio.subprocess.STDOUT,
        cwd=cwd,
    )
    try:
        async with asyncio.timeout(timeout_s):
            written, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Ended(exit_code=process.returncode or 0, output=written or b"", errors=errors or b"")
