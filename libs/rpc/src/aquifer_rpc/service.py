"""The start and the end of a service process."""

import asyncio
import importlib
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, NoReturn, TypeVar

import structlog
from aquifer_core.errors import InvalidConfigurationError

from aquifer_rpc.allocator import keep_freed_memory
from aquifer_rpc.environment import load_settings
from aquifer_rpc.garbage import spare_what_was_loaded
from aquifer_rpc.log_setup import configure_logging, log_unhandled
from aquifer_rpc.settings import ServiceSettings
from aquifer_rpc.supervised import SupervisedLoop
from aquifer_rpc.telemetry import telemetry
from aquifer_rpc.workers import Heartbeat, WorkerProcesses, shared_address

logger = structlog.get_logger(__name__)

EXIT_CONFIGURATION: Final = 2
_STOP_MARGIN_S: Final = 5.0

S = TypeVar("S", bound=ServiceSettings)


def run_service(
    name: str,
    settings_type: type[S],
    prefix: str,
    serve: Callable[[S], Awaitable[None]],
    argv: list[str] | None = None,
    *,
    workers: Callable[[S], int] | None = None,
) -> NoReturn:
    """Runs a service until it ends, and exits the process.

    `--version` and `--help` answer and exit. Exit code 0 after a clean end, 2 with one line for a refused setting, 1 with a
    logged traceback for anything else.

    Args:
        name: distribution name, for example `aquifer-storage`; also `service.name`.
        settings_type: its settings.
        prefix: of its variables, for example `AQUIFER_STORAGE_`.
        serve: the composition root.
        argv: arguments; None takes the process's.
        workers: how many processes the settings ask for; None: the service cannot be more than one.
    """
    arguments = sys.argv[1:] if argv is None else argv
    if arguments:
        sys.exit(_answer(name, prefix, arguments))
    try:
        settings = load_settings(settings_type, prefix)
        keep_freed_memory()
        configure_logging(settings.log, name)
        count = 1 if workers is None else workers(settings)
        with (
            _process(settings, count) as (own, heartbeat),
            telemetry(own.telemetry, name),
        ):
            _run(serve(own), heartbeat)
    except InvalidConfigurationError as error:
        print(f"{name}: {error.message}", file=sys.stderr)  # noqa: T201 - before logging is set up
        sys.exit(EXIT_CONFIGURATION)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        logger.critical("service_failed", exc_info=error)
        sys.exit(1)
    sys.exit(0)


def own_stop_s(settings: ServiceSettings) -> float:
    """How long a server may take to drain, and to send the last traces and metrics to a collector that does not answer."""
    grpc = settings.grpc
    return grpc.drain_delay_s + grpc.drain_grace_s + 2 * settings.telemetry.export_timeout_s


@contextmanager
def _process(settings: S, workers: int) -> Iterator[tuple[S, Heartbeat | None]]:
    """The settings of this process: one of many workers, or the only one. The parent of workers exits in here."""
    if workers == 1:
        yield settings, None
        return
    stop_s = own_stop_s(settings) + _STOP_MARGIN_S
    with shared_address(settings.grpc.listen) as listen:
        outcome = WorkerProcesses(workers, stop_s=stop_s).run()
        if isinstance(outcome, int):
            sys.exit(outcome)
        grpc = settings.grpc.model_copy(update={"listen": listen, "reuse_port": True})
        yield settings.model_copy(update={"grpc": grpc}), outcome


def _run(main: Awaitable[None], heartbeat: Heartbeat | None) -> None:
    async def run() -> None:
        log_unhandled(asyncio.get_running_loop())
        async with AsyncExitStack() as stack:
            if heartbeat is not None:
                loop = SupervisedLoop(
                    "worker heartbeat", heartbeat.beat, interval_s=heartbeat.interval_s
                )
                await stack.enter_async_context(loop)
            await main

    spare_what_was_loaded()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(run())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed; None for the standard loop."""
    try:
        uvloop: Any = importlib.import_module("uvloop")
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _answer(name: str, prefix: str, arguments: list[str]) -> int:
    if arguments == ["--version"]:
        try:
            print(f"{name} {version(name)}")  # noqa: T201 - the answer to a command line
        except PackageNotFoundError:
            print(name)  # noqa: T201 - the answer to a command line
        return 0
    help_text = f"usage: {name} [--help | --version]\n\nSettings come from variables {prefix}*."
    asked = arguments in (["--help"], ["-h"])
    print(help_text, file=sys.stdout if asked else sys.stderr)
    return 0 if asked else EXIT_CONFIGURATION
