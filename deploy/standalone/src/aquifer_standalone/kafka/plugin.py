"""The jar of the plugin, built when it is missing or older than its sources."""

import zipfile
from pathlib import Path
from typing import Final

from aquifer_standalone.kafka.installation import (
    CHECKOUT,
    KafkaUnavailableError,
    locked,
    maven,
)

_FOLDER: Final = CHECKOUT / "clients" / "kafka-plugin"
_JAR: Final = _FOLDER / "target" / "aquifer-kafka-plugin.jar"
_SOURCES: Final = (_FOLDER / "src" / "main", _FOLDER / "pom.xml", CHECKOUT / "protos" / "aquifer")
_CLASSES: Final = {
    f"io/aquifer/kafka/GrpcRemote{role}Manager.class" for role in ("Storage", "LogMetadata")
}


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
    if not _is_whole():
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
    except (FileNotFoundError, zipfile.BadZipFile):
        return False


async def _build() -> None:
    await maven(_FOLDER / "pom.xml", "package", "-DskipTests")
    if not _is_whole():
        raise KafkaUnavailableError(f"Maven made no whole {_JAR}")
