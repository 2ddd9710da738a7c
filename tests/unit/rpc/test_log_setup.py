import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import asyncio, logging, sys
import structlog
from aquifer_rpc.log_setup import configure_logging, log_unhandled
from aquifer_rpc.settings import LogSettings
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

configure_logging(LogSettings(format=sys.argv[1], level="info"), "aquifer-unit")
logger = structlog.get_logger("unit")
span = NonRecordingSpan(SpanContext(0xabc, 0xdef, False, TraceFlags(1)))
with trace.use_span(span):
    structlog.contextvars.bind_contextvars(request_id="request-7")
    logger.info("segment_copied", topic="t", partition=3)
logger.debug("not_written")
logging.getLogger("library").warning("careful with %s", "this")
# A client that died before it was answered.
core = logging.getLogger("grpc._cython.cygrpc")
core.error("ExecuteBatchError raised in core by servicer method [%s]", "/a.B/C")
try:
    raise ValueError("bad")
except ValueError:
    logger.exception("failed")


async def main():
    log_unhandled(asyncio.get_running_loop())
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    await asyncio.sleep(0.01)

asyncio.run(main())
"""


def run(log_format: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, log_format],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == ""
    return done.stderr


def test_json_lines_carry_fields_request_and_trace() -> None:
    copied, library, failed, unhandled = map(json.loads, run("json").splitlines())

    assert copied["event"] == "segment_copied"
    assert (copied["topic"], copied["partition"]) == ("t", 3)
    assert copied["request_id"] == "request-7"
    assert copied["trace_id"] == f"{0xABC:032x}"
    assert copied["span_id"] == f"{0xDEF:016x}"
    assert copied["service"] == "aquifer-unit"
    assert copied["level"] == "info"
    assert (library["event"], library["level"]) == ("careful with this", "warning")
    assert "ValueError: bad" in failed["exception"]
    assert unhandled["event"] == "unhandled_in_event_loop"
    assert "ZeroDivisionError" in unhandled["exception"]


def test_console_lines_are_readable() -> None:
    lines = run("console").splitlines()

    assert "segment_copied" in lines[0]
    assert "partition=3" in lines[0]
    assert "\x1b[" not in lines[0]


FULL_DISK = """
import asyncio, os, sys
import structlog
from aquifer_rpc.log_setup import configure_logging
from aquifer_rpc.settings import LogSettings
from aquifer_rpc.supervised import SupervisedLoop

configure_logging(LogSettings(format=sys.argv[1], level="info"), "aquifer-unit")
logger = structlog.get_logger("unit")
logger.info("before")
good, full = os.dup(2), os.open("/dev/full", os.O_WRONLY)
os.dup2(full, 2)
logger.info("while_full", padding="x" * 20_000)


async def main():
    runs = asyncio.Queue()

    async def body():
        runs.put_nowait(None)
        raise RuntimeError("fails, and its line cannot be written " + "x" * 20_000)

    async with SupervisedLoop("t", body, interval_s=60, backoff_min_s=0.001):
        for _ in range(3):
            async with asyncio.timeout(60):
                await runs.get()

asyncio.run(main())
os.dup2(good, 2)
logger.info("after")
logger.info("long_after")
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is full")
@pytest.mark.parametrize("log_format", ["json", "console"])
def test_lines_that_cannot_be_written_stop_nothing_and_are_counted(log_format: str) -> None:
    """A disk that is full of logs must not end the loops that would free it."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, log_format],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    events = [line for line in done.stderr.splitlines() if "log_lines_lost" in line]
    assert len(events) == 1
    assert done.stderr.index("before") < done.stderr.index("log_lines_lost")
    assert done.stderr.index("log_lines_lost") < done.stderr.index("after")
    if log_format == "json":
        lost = json.loads(events[0])
        assert lost["lines"] >= 3
        assert (lost["level"], lost["service"]) == ("warning", "aquifer-unit")
