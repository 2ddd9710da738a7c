"""The jar of the plugin, built when it is missing or older than its sources."""

import os
import tempfile
import time
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
_BUILT: Final = CHECKOUT / "build" / "kafka"
_JAR: Final = _BUILT / "aquifer-kafka-plugin.jar"
_SOURCES: Final = (_FOLDER / "src" / "main", _FOLDER / "pom.xml", CHECKOUT / "protos" / "aquifer")
_CLASSES: Final = {
    f"io/aquifer/kafka/GrpcRemote{role}Manager.class" for role in ("Storage", "LogMetadata")
}


async def plugin_jar() -> Path:
    """The jar, made with Maven where needed; safe when several processes ask at once, or Maven is run by hand.

    Raises:
        KafkaUnavailableError: there is no Maven, or it failed.
    """
    async with locked(_BUILT / "plugin.lock"):
        if not _is_fresh():
            await _build()
    return _JAR


def _is_fresh() -> bool:
    if not _is_whole(_JAR):
        return False
    files = [
        file
        for source in _SOURCES
        for file in (source.rglob("*") if source.is_dir() else (source,))
        if file.suffix in (".java", ".xml", ".proto")
    ]
    return _JAR.stat().st_mtime >= max(file.stat().st_mtime for file in files)


def _is_whole(jar: Path) -> bool:
    """Whether a jar has the plugin's classes."""
    try:
        with zipfile.ZipFile(jar) as opened:
            return set(opened.namelist()) >= _CLASSES
    except (FileNotFoundError, zipfile.BadZipFile):
        return False


async def _build() -> None:
    """In a folder of its own; the jar takes its place when it is complete, and is as old as what it was made of."""
    started = time.time()
    with tempfile.TemporaryDirectory(dir=_BUILT, prefix="plugin-") as folder:
        await maven(_FOLDER / "pom.xml", "package", "-DskipTests", f"-Dbuild.folder={folder}")
        made = Path(folder) / _JAR.name
        if not _is_whole(made):
            raise KafkaUnavailableError(f"Maven made no whole {_JAR.name}")
        os.utime(made, (started, started))
        made.replace(_JAR)
