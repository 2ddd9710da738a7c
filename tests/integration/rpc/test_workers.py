"""Several worker processes of one service: they share a port, come back, and go together."""

import asyncio
import os
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
from aquifer.storage.v1 import remote_storage_service_pb2 as pb
from aquifer.storage.v1 import remote_storage_service_pb2_grpc as pb_grpc
from aquifer_core.errors import UnavailableError
from aquifer_rpc.calls import call_unary
from aquifer_rpc.channel import connect
from aquifer_rpc.settings import GrpcClientSettings
from aquifer_standalone.ports import hold_port
from fixtures.polling import eventually

SCRIPT = """
import asyncio, os, sys
from aquifer.storage.v1 import remote_storage_service_pb2 as pb
from aquifer.storage.v1 import remote_storage_service_pb2_grpc as pb_grpc
from aquifer_core.errors import InvalidConfigurationError
from aquifer_rpc.server import GrpcServer
from aquifer_rpc.service import run_service
from aquifer_rpc.settings import ServiceSettings

class Worker(pb_grpc.RemoteStorageServiceServicer):
    async def GetCapabilities(self, request, context):
        return pb.GetCapabilitiesResponse(version=str(os.getpid()))

class Settings(ServiceSettings):
    workers: int = 2
    how: str = "well"

async def serve(settings):
    if settings.how == "refused":
        raise InvalidConfigurationError("how: say how")
    if settings.how == "fails":
        raise RuntimeError("unforeseen")
    server = GrpcServer(settings.grpc, name="workers")
    server.add(pb_grpc.add_RemoteStorageServiceServicer_to_server, Worker())
    async with server:
        await server.run_until_signal()

run_service("aquifer-rpc", Settings, "AQUIFER_MANY_", serve, [], workers=lambda s: s.workers)
"""


BEATING = """
import asyncio, os, sys
import structlog
from aquifer_rpc.workers import WorkerProcesses

structlog.configure(logger_factory=structlog.WriteLoggerFactory(file=sys.stderr))
outcome = WorkerProcesses(2, stop_s=30, silence_s=3).run()
if isinstance(outcome, int):
    sys.exit(outcome)

async def main():
    os.write(1, b"%d\\n" % os.getpid())
    while True:
        await outcome.beat()
        await asyncio.sleep(0.05)

asyncio.run(main())
"""


async def start(tmp_path: Path, **variables: str) -> asyncio.subprocess.Process:
    script = tmp_path / "service.py"
    script.write_text(SCRIPT)
    environment = {f"AQUIFER_MANY_{name}": value for name, value in variables.items()}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        str(script),
        env={**os.environ, **environment},
        stderr=asyncio.subprocess.PIPE,
    )


@asynccontextmanager
async def running(tmp_path: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    with hold_port() as port:
        address = f"127.0.0.1:{port.number}"
    process = await start(tmp_path, GRPC__LISTEN=address, LOG__LEVEL="error")
    try:
        yield process, address
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def serving(address: str) -> set[int]:
    """Process ids of the workers that answer on new connections."""
    pids = set()
    for _ in range(16):
        settings = GrpcClientSettings(private_connection=True, max_attempts=1)
        async with connect(address, settings=settings) as channel:
            stub = pb_grpc.RemoteStorageServiceStub(channel)
            try:
                answer = await call_unary(stub.GetCapabilities, pb.GetCapabilitiesRequest())
            except UnavailableError:
                continue
            pids.add(int(answer.version))
    return pids


async def both(address: str, *, without: int = 0) -> set[int]:
    """Wait until two workers answer, and none that is gone."""
    found: set[int] = set()

    async def are_there() -> bool:
        nonlocal found
        found = await serving(address)
        return len(found) == 2 and without not in found

    await eventually(are_there, timeout_s=60)
    return found


async def test_a_killed_worker_comes_back_and_the_other_serves_meanwhile(tmp_path: Path) -> None:
    async with running(tmp_path) as (process, address):
        first, second = sorted(await both(address))
        assert process.pid not in (first, second)
        os.kill(first, signal.SIGKILL)
        assert second in await serving(address)
        assert second in await both(address, without=first)


async def test_a_stop_reaches_every_worker_and_leaves_none(tmp_path: Path) -> None:
    async with running(tmp_path) as (process, address):
        pids = await both(address)
        process.terminate()
        assert await process.wait() == 0
        assert not [pid for pid in pids if psutil.pid_exists(pid)]


async def test_workers_do_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    async with running(tmp_path) as (process, address):
        pids = await both(address)
        process.kill()
        await process.wait()
        await eventually(lambda: not any(map(psutil.pid_exists, pids)), timeout_s=60)


async def test_a_refused_configuration_ends_all_with_code_2(tmp_path: Path) -> None:
    process = await start(tmp_path, HOW="refused", LOG__LEVEL="error")
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert b"aquifer-rpc: how: say how" in errors


async def test_workers_that_never_come_up_end_the_service(tmp_path: Path) -> None:
    process = await start(tmp_path, HOW="fails")
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert b"unforeseen" in errors


async def test_a_taken_port_is_refused(tmp_path: Path) -> None:
    with hold_port() as port:
        process = await start(tmp_path, GRPC__LISTEN=f"127.0.0.1:{port.number}")
        _, errors = await process.communicate()
    assert process.returncode == 2
    assert b"cannot listen on" in errors


@asynccontextmanager
async def beating(
    tmp_path: Path,
) -> AsyncIterator[tuple[asyncio.subprocess.Process, asyncio.StreamReader, Path]]:
    """A parent of two workers without a server, the process ids of its workers, and its log."""
    script, log = tmp_path / "beating.py", tmp_path / "log"
    script.write_text(BEATING)
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(script), stdout=asyncio.subprocess.PIPE, stderr=errors
        )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(120):
            yield process, process.stdout, log
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def test_workers_are_not_killed_for_a_pause_of_the_whole_machine(tmp_path: Path) -> None:
    """As a paused container or a machine that is moved has one: nobody beat, and nobody could."""
    async with beating(tmp_path) as (process, workers, log):
        first, second = int(await workers.readline()), int(await workers.readline())
        everybody = (process.pid, first, second)
        for pid in everybody:
            os.kill(pid, signal.SIGSTOP)
        over_s = time.monotonic() + 4
        await eventually(lambda: time.monotonic() > over_s)
        for pid in everybody:
            os.kill(pid, signal.SIGCONT)
        # The parent looks at all of them before it puts another one in the place of one that has ended.
        os.kill(first, signal.SIGKILL)
        await workers.readline()
        assert psutil.pid_exists(second)
        assert b"worker_hangs" not in log.read_bytes()


async def test_a_worker_that_cannot_be_started_now_is_started_later(tmp_path: Path) -> None:
    """A machine that is short of something does not lose the workers that it has."""
    async with beating(tmp_path) as (process, workers, log):
        first, second = int(await workers.readline()), int(await workers.readline())
        before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (3, before[1]))
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: b"worker_not_started" in log.read_bytes())
        assert psutil.pid_exists(second)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)
        assert int(await workers.readline()) not in (first, second)
        assert psutil.pid_exists(second)
