"""The `aquifer-standalone` command: run the suite on one machine, or show the main job."""

import argparse
import asyncio
import sys
from pathlib import Path

from aquifer_core.errors import AquiferError
from aquifer_rpc.log_setup import configure_logging
from aquifer_rpc.settings import LogLevel, LogSettings

from aquifer_standalone.background import down, status, up
from aquifer_standalone.demo.kafka_story import run_kafka_demo
from aquifer_standalone.demo.story import run_demo
from aquifer_standalone.kafka.installation import NEWEST
from aquifer_standalone.run import run_until_signal


def main() -> None:
    """Runs the command line; exit code 1 with one line when it fails."""
    arguments = _parser().parse_args()
    configure_logging(LogSettings(level=LogLevel(arguments.log_level)), "aquifer-standalone")
    try:
        code = arguments.run(arguments)
    except (AquiferError, OSError, TimeoutError, ValueError) as error:
        sys.exit(f"aquifer-standalone: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="aquifer-standalone", description=__doc__)
    parser.add_argument(
        "--log-level", default="warning", choices=[level.value for level in LogLevel]
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run everything until a signal")
    _add_stack_options(run)
    run.set_defaults(run=lambda a: asyncio.run(run_until_signal(a.data, a.brokers, a.otlp)))

    start = commands.add_parser("up", help="start everything in the background")
    _add_stack_options(start)
    start.set_defaults(run=lambda a: up(a.data, a.brokers, a.otlp))

    for name, action, text in (
        ("down", down, "stop what `up` started"),
        ("status", status, "say what `up` runs and where clients connect"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--data", type=Path, default=Path("data"), metavar="FOLDER")
        command.set_defaults(run=lambda a, action=action: action(a.data))

    demo = commands.add_parser("demo", help="tier a real log out and read it back")
    demo.add_argument(
        "--input", type=Path, metavar="FILE", help="lines to tier instead of Python's sources"
    )
    demo.add_argument("--data", type=Path, metavar="FOLDER", help="keep the data here afterwards")
    demo.add_argument("--megabytes", type=int, default=256, help="tier at least this much")
    demo.set_defaults(run=lambda a: asyncio.run(run_demo(a.input, a.data, a.megabytes)))

    kafka = commands.add_parser(
        "demo-kafka", help="the same with Apache Kafka and the plugin; needs Java 17 and Maven"
    )
    kafka.add_argument("--data", type=Path, metavar="FOLDER", help="keep the data here afterwards")
    kafka.add_argument("--megabytes", type=int, default=96, help="tier at least this much")
    kafka.add_argument("--version", default=NEWEST, help="release of Apache Kafka")
    kafka.set_defaults(run=lambda a: asyncio.run(run_kafka_demo(a.data, a.megabytes, a.version)))
    return parser


def _add_stack_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, default=Path("data"), metavar="FOLDER")
    parser.add_argument("--brokers", type=int, default=3, metavar="N")
    parser.add_argument(
        "--otlp", metavar="URL", help="send traces and metrics there (http://host:port)"
    )


if __name__ == "__main__":
    main()
