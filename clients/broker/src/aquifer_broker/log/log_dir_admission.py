"""Opens a broker's log dirs and finds out which are missing; an empty directory in the place of one is not taken for it."""

import errno
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog
from aquifer_core.errors import InvalidConfigurationError
from aquifer_core.ids import KafkaUuid

from aquifer_broker.log.known_dirs import KnownDirs
from aquifer_broker.log.log_dir import LogDir
from aquifer_broker.log.log_errors import LogStorageError

__all__ = ["LOST_DIRS_KEY", "AdmittedDirs", "admit_log_dirs"]

logger = structlog.get_logger(__name__)

LOST_DIRS_KEY = "aquifer.lost.log.dirs"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedDirs:
    """The log dirs at the start.

    Attributes:
        dirs: Those that were opened; one that is refused is offline.
        missing: What cannot be looked into and was not given up, in words.
        given_up: Directory ids of dirs that are not waited for.
    """

    dirs: Sequence[LogDir]
    missing: Sequence[str]
    given_up: frozenset[KafkaUuid]


def admit_log_dirs(
    paths: Sequence[Path], open_dir: Callable[[Path], LogDir], lost: Collection[KafkaUuid]
) -> AdmittedDirs:
    """Opens each dir, compares them with what they remember of one another, and lets them remember what is there now. Blocks.

    Args:
        paths: `log.dirs`.
        open_dir: Opens one, locked.
        lost: Directory ids of dirs that never come back, as the operator says.

    Raises:
        InvalidConfigurationError: A dir belongs to somebody else, two have one id, or one is here that is said to be lost.
    """
    dirs: list[LogDir] = []
    failed: list[Path] = []
    try:
        for path in paths:
            try:
                dirs.append(open_dir(path))
            except LogStorageError:
                failed.append(path)
        known = KnownDirs.merged(each.known for each in dirs)
        present = _present(dirs)
        _check_lost(present, lost, known)
    except BaseException:
        for each in dirs:
            each.close()
        raise
    known = KnownDirs(paths=known.paths, given_up=known.given_up | frozenset(lost))
    for directory_id in present.keys() & known.given_up:
        _refuse(
            present[directory_id],
            f"it was given up as lost ({directory_id}) and its partitions went on without it; what it holds is kept, and is "
            "not served any more: use an empty directory instead",
        )
    away = {
        directory_id: path
        for directory_id, path in known.paths.items()
        if directory_id not in present and directory_id not in known.given_up
    }
    _identify_new(dirs, away)
    _remember(dirs, known)
    return AdmittedDirs(
        dirs=dirs, missing=_missing(dirs, failed, away, known), given_up=known.given_up
    )


def _present(dirs: Sequence[LogDir]) -> dict[KafkaUuid, LogDir]:
    present: dict[KafkaUuid, LogDir] = {}
    for each in dirs:
        if each.id == KafkaUuid.ZERO:
            continue
        other = present.setdefault(each.id, each)
        if other is not each:
            raise InvalidConfigurationError(
                f"log.dirs={str(each.path)!r} is not valid: it has the directory id {each.id} of {other.path}; "
                "one is a copy of the other: give only the one that the broker used last"
            )
    return present


def _check_lost(
    present: Mapping[KafkaUuid, LogDir], lost: Collection[KafkaUuid], known: KnownDirs
) -> None:
    for directory_id in lost:
        if directory_id in present and directory_id not in known.given_up:
            raise InvalidConfigurationError(
                f"{LOST_DIRS_KEY}={str(directory_id)!r} is not valid: {present[directory_id].path} has this id and can be "
                "used; take the id out"
            )


def _identify_new(dirs: Sequence[LogDir], away: Mapping[KafkaUuid, str]) -> None:
    held = {path: directory_id for directory_id, path in away.items()}
    for each in dirs:
        if each.id != KafkaUuid.ZERO:
            continue
        if (directory_id := held.get(str(each.path))) is not None:
            _refuse(
                each,
                f"it has no meta.properties, but the broker used a disk here (directory id {directory_id}): mount that one; "
                f"if it is lost for good, set {LOST_DIRS_KEY}={directory_id}",
            )
            continue
        # It goes offline if it fails now.
        with suppress(LogStorageError), each.guard:
            each.identify()


def _remember(dirs: Sequence[LogDir], known: KnownDirs) -> None:
    online = [each for each in dirs if each.guard.online]
    now = known.with_present({each.id: str(each.path) for each in online})
    for each in online:
        with suppress(LogStorageError), each.guard:
            each.remember(now)


def _missing(
    dirs: Sequence[LogDir],
    failed: Sequence[Path],
    away: Mapping[KafkaUuid, str],
    known: KnownDirs,
) -> list[str]:
    # A path that cannot be opened is that of a dir known to be away, or nobody knows what it holds.
    refused = [
        each.path for each in dirs if not each.guard.online and each.id not in known.given_up
    ]
    paths = dict.fromkeys(map(str, (*failed, *refused)))
    given_up = {known.paths[each] for each in known.given_up if each in known.paths}
    ids = {path: directory_id for directory_id, path in away.items()}
    missing = [
        f"{path} (directory id {ids[path]})" if path in ids else path
        for path in dict.fromkeys((*paths, *ids))
        if path in ids or path not in given_up
    ]
    for each in missing:
        logger.error("log_dir_missing", log_dir=each)
    return missing


def _refuse(log_dir: LogDir, why: str) -> None:
    log_dir.guard.fail(OSError(errno.ENODEV, why))
