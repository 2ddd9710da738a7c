"""The jar of the plugin, built when it is missing or older than its sources."""

import shutil
import zipfile
from pathlib import Path
from typing import Final

from aquifer_standalone.kafka.installation import (
    CHECKOUT,
    KafkaUnavailableError,
    locked,
    run_to_end,
)

_FOLDER: Final = CHECKOUT / "clients" / "kafka-plugin"
_JAR: Final = _FOLDER / "target" / "aquifer-kafka-plugin.jar"
_SOURCES: Final = (_FOLDER / "src" / "main", _FOLDER / "pom.xml", CHECKOUT / "protos" / "aquifer")
_CLASSES: Final = {
    f"io/aquifer/kafka/GrpcRemote{role}Manager.class" for role in ("Storage", "LogMetadata")
}
_TAIL_BYTES: Final = 2_000


async def plugin_jar() -> Path:
    """The jar, made with Maven where needed; safe when several processes ask at once.

    Raises:
        KafkaUnavailableError: there is no Maven, or it failed.
    """
    async with locked(CHECKOUT / "build" / "kafka" / "plugin.lock"):
        if not _is_fresh():
            await _build()
    return _JAR


def _is_fresh() -> bool:
    if not _JAR.is_file() or not _is_whole():
        return False
    files = [
        file
        for source in _SOURCES
        for file in (source.rglob("*") if source.is_dir() else (source,))
        if file.suffix in (".java", ".xml", ".proto")
    ]
    return _JAR.stat().st_mtime >= max(file.stat().st_mtime for file in files)


def _is_whole() -> bool:
    """Whether the jar has the plugin's classes; an interrupted build leaves one without."""
    try:
        with zipfile.ZipFile(_JAR) as jar:
            return set(jar.namelist()) >= _CLASSES
    except zipfile.BadZipFile:
        return False


async def _build() -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailableError("building the plugin needs Maven: no mvn found")
    pom = str(_FOLDER / "pom.xml")
    code, text = await run_to_end(
        maven, "--batch-mode", "--quiet", "--file", pom, "package", "-DskipTests"
    )
    if code != 0 or not _is_fresh():
        raise KafkaUnavailableError(f"the plugin cannot be built: {text[-_TAIL_BYTES:]}")
