"""The jars of an Apache Kafka release, fetched once with Maven, and the commands that run them."""

import asyncio
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
from aquifer_core.errors import UnavailableError

from aquifer_standalone.programs import run_program

logger = structlog.get_logger(__name__)

NEWEST: Final = "4.4.0"
VERSIONS: Final = (NEWEST, "4.0.2", "3.9.2")
"""What the project is tried with: the newest release, the first line of Kafka 4, the last line of Kafka 3."""

CHECKOUT: Final = Path(__file__).resolve().parents[5]
FILES: Final = CHECKOUT / "deploy" / "kafka"
"""Where the pom, the properties and the logging configurations are."""

_JARS: Final = CHECKOUT / "build" / "kafka"
_FETCH_S: Final = 600.0
_LOCK_POLL_S: Final = 0.2
_MAVEN_ATTEMPTS: Final = 3
_MIN_JAVA: Final = 17
_TAIL_BYTES: Final = 2_000


class KafkaUnavailableError(UnavailableError):
    """This machine cannot run Apache Kafka; the text says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaInstallation:
    """A release that can be run."""

    version: str
    java: str
    jars: Path

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor version."""
        major, minor, *_ = self.version.split(".")
        return int(major), int(minor)

    def argv(
        self, main_class: str, *arguments: str, jvm: Sequence[str] = (), log_level: str = "INFO"
    ) -> tuple[str, ...]:
        """The command that runs a main class of the release and logs to standard error; `argv[0]` is absolute."""
        logging = (
            f"-Dlog4j.configuration=file:{FILES / 'log4j.properties'}"
            if self.version.startswith("3.")
            else f"-Dlog4j2.configurationFile={FILES / 'log4j2.properties'}"
        )
        options = (*jvm, logging, f"-Dkafka.log.level={log_level}", "-cp", f"{self.jars}/*")
        return (self.java, *options, main_class, *arguments)


async def install(version: str = NEWEST) -> KafkaInstallation:
    """Find a release below build/kafka, fetching its jars with Maven the first time.

    Idempotent, and safe when several processes ask at once.

    Raises:
        KafkaUnavailableError: there is no Java 17, no Maven, or the jars cannot be had.
    """
    java = await _checked_java()
    jars = _JARS / version
    if not jars.is_dir():
        async with locked(_JARS / f"{version}.lock"):
            if not jars.is_dir():
                await _fetch(version, jars)
    return KafkaInstallation(version=version, java=java, jars=jars)


async def _checked_java() -> str:
    java = _found_java()
    if java is None:
        raise KafkaUnavailableError(f"Apache Kafka needs Java {_MIN_JAVA} or newer: no java found")
    code, text = await _run_to_end(java, "-version")
    found = re.search(r'version "(\d+)', text)
    if code != 0 or found is None or int(found[1]) < _MIN_JAVA:
        raise KafkaUnavailableError(f"Apache Kafka needs Java {_MIN_JAVA} or newer: {text.strip()}")
    return java


def _found_java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home and (java := Path(home, "bin", "java")).is_file():
        return str(java)
    return shutil.which("java")


async def _fetch(version: str, jars: Path) -> None:
    pom = FILES / "pom.xml"
    if not pom.is_file():
        raise KafkaUnavailableError(f"no {pom}: this needs a checkout of the repository")
    with tempfile.TemporaryDirectory(dir=jars.parent, prefix=f"{version}-") as folder:
        fresh = Path(folder) / "jars"
        await maven(
            pom,
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={fresh}",
            f"-Dkafka.version={version}",
            *(() if version.startswith("3.") else ("-Plog4j2",)),
        )
        if not any(fresh.glob("kafka_*.jar")):
            raise KafkaUnavailableError(f"Maven has no jars of Apache Kafka {version}")
        fresh.rename(jars)


async def maven(pom: Path, *arguments: str) -> None:
    """Run Maven; again when it fails, since what it fetches may fail to come.

    Raises:
        KafkaUnavailableError: there is no Maven, or it failed each time; the text has the end of its output.
    """
    command = shutil.which("mvn")
    if command is None:
        raise KafkaUnavailableError("this needs Maven: no mvn found")
    argv = (command, "--batch-mode", "--quiet", "--file", str(pom), *arguments)
    for left in reversed(range(_MAVEN_ATTEMPTS)):
        code, text = await _run_to_end(*argv)
        if code == 0:
            return
        logger.warning("maven_failed", pom=str(pom), exit_code=code, attempts_left=left)
    raise KafkaUnavailableError(f"Maven failed on {pom}: {text[-_TAIL_BYTES:]}")


async def _run_to_end(*argv: str) -> tuple[int, str]:
    """Run a command to its end: its exit code and all its output."""
    try:
        ended = await run_program(argv, timeout_s=_FETCH_S)
    except TimeoutError:
        return -1, f"{argv[0]} did not end within {_FETCH_S:.0f} s"
    return ended.exit_code, ended.output.decode(errors="replace")


@asynccontextmanager
async def locked(file: Path) -> AsyncIterator[None]:
    """Hold a lock file, waiting for whoever has it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        async with asyncio.timeout(_FETCH_S):
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    await asyncio.sleep(_LOCK_POLL_S)
                else:
                    break
        yield
    finally:
        os.close(handle)
