"""`aquifer-broker server.properties [--override key=value ...]`."""

import argparse
import asyncio
import gc
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final, NoReturn

import structlog
import uvloop
from aquifer_core.errors import InvalidConfigurationError, PreconditionError
from aquifer_rpc.allocator import keep_freed_memory
from aquifer_rpc.log_setup import configure_logging, log_unhandled
from aquifer_rpc.settings import LogFormat, LogLevel, LogSettings, TelemetrySettings
from aquifer_rpc.telemetry import telemetry

from aquifer_broker.app import BrokerNode
from aquifer_broker.config.broker_config import BrokerConfig
from aquifer_broker.config.plugins import check_plugins
from aquifer_broker.config.properties import load_properties, parse_override

__all__ = ["main"]

logger = structlog.get_logger(__name__)

_NAME: Final = "aquifer-broker"
_EXIT_CONFIGURATION: Final = 2


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs a broker node; exit code 0 after a clean stop, 2 with one line for a refused configuration, 1 otherwise."""
    arguments = _parser().parse_args(argv)
    keep_freed_memory()
    try:
        config = _load(arguments.properties, arguments.override)
        check_plugins(config)
        configure_logging(
            LogSettings(
                format=LogFormat(config.values["aquifer.log.format"]),
                level=LogLevel(config.values["aquifer.log.level"]),
            ),
            _NAME,
        )
        settings = TelemetrySettings(
            otlp_endpoint=config.values["aquifer.telemetry.endpoint"],
            instance_id=f"broker-{config.node_id}",
        )
        with (
            telemetry(settings, _NAME),
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            runner.run(_serve(config))
    except InvalidConfigurationError as error:
        print(f"{_NAME}: {' '.join(error.message.split())}", file=sys.stderr)
        sys.exit(_EXIT_CONFIGURATION)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        logger.critical("broker_failed", exc_info=error)
        sys.exit(1)
    sys.exit(0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_NAME, description="Kafka-protocol broker node with tiered storage."
    )
    parser.add_argument("properties", type=Path, help="path of server.properties")
    parser.add_argument(
        "--override", action="append", default=[], metavar="KEY=VALUE", help="replaces a property"
    )
    parser.add_argument("--version", action="version", version=f"{_NAME} {version(_NAME)}")
    return parser


def _load(path: Path, overrides: Sequence[str]) -> BrokerConfig:
    properties = load_properties(path)
    properties.update(map(parse_override, overrides))
    return BrokerConfig.parse(properties)


async def _serve(config: BrokerConfig) -> None:
    loop = asyncio.get_running_loop()
    log_unhandled(loop)
    node = BrokerNode(config)
    starting = asyncio.current_task()
    assert starting is not None
    asked = False

    def stop() -> None:
        nonlocal asked
        # A broker that still waits for its view has nothing to drain.
        if not serving and not asked:
            starting.cancel()
        asked = True
        node.stopping.set()

    serving = False
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        async with node:
            serving = True
            # Looking through all that a broker is made of takes tens of milliseconds in which nobody is served.
            gc.collect()
            gc.freeze()
            await node.stopping.wait()
        if node.superseded:
            raise PreconditionError(
                f"another broker has registered with node.id={config.node_id}; give every broker its own"
            )
    except asyncio.CancelledError:
        if not asked:
            raise
        starting.uncancel()


if __name__ == "__main__":
    main()
