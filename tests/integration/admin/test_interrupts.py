"""Ctrl-C ends a command at once, whatever it waits for."""

import asyncio
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest


@asynccontextmanager
async def silence() -> AsyncIterator[tuple[str, asyncio.Event]]:
    """A server that takes connections and says nothing; its address, and whether somebody has called."""
    called, over = asyncio.Event(), asyncio.Event()

    async def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.set()
        await over.wait()
        writer.close()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
        try:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", called
        finally:
            over.set()


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("topics", "list"), "--metadata"),
        (("metadata", "import"), "--bootstrap-server"),
        (("metadata", "export"), "--bootstrap-server"),
    ],
)
async def test_an_interrupted_command_does_not_wait_for_a_service_that_is_silent(
    arguments: tuple[str, ...], option: str
) -> None:
    async with silence() as (address, called):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "aquifer_admin", *arguments, option, address),
            *("--timeout", "900"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(60):
                await called.wait()
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(60):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in err


async def test_an_interrupt_at_the_question_whether_to_delete_is_taken_at_once() -> None:
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aquifer_admin", "topics", "delete", "orders"),
        *("--metadata", "127.0.0.1:1"),
        stdin=theirs,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            await process.stderr.readuntil(b"[y/N]:")
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(60):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(ours)
        os.close(theirs)
    assert (process.returncode, out.strip()) == (1, b"")
    assert err.splitlines()[-1] == b"aquifer: cancelled; nothing was changed"
