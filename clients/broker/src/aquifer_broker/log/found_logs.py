"""Partitions that lie in more than one log dir at the start: which copy is the log, if that can be known."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from aquifer_core.formats.segment_files import LOG_SUFFIX
from aquifer_core.ids import KafkaUuid

from aquifer_broker.log.log_dir import LogDir, read_topic_id
from aquifer_broker.log.log_errors import LogStorageError
from aquifer_broker.log.move_notes import MOVED_FROM_NAME, MOVING_TO_NAME, read_note

__all__ = ["FoundLog", "copies_of_one_move"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLog:
    """A directory of a partition of which it is not clear whether it is the log.

    Attributes:
        topic_id: None: it cannot be read.
        moved_from: Directory id of the log dir that the log has left; None: it was never moved.
        moving_to: Directory id of the log dir in which the log may have gone on; None: it has not.
        reach: Name and size of the last segment file.
    """

    home: LogDir
    path: Path
    topic_id: KafkaUuid | None
    moved_from: KafkaUuid | None
    moving_to: KafkaUuid | None
    reach: tuple[str, int]

    @classmethod
    def read(cls, home: LogDir, path: Path) -> "FoundLog":
        """Looks into a directory; of a disk that fails meanwhile nothing is known. Blocks."""
        try:
            with home.guard:
                segments = sorted(each for each in path.iterdir() if each.suffix == LOG_SUFFIX)
                return cls(
                    home=home,
                    path=path,
                    topic_id=read_topic_id(path),
                    moved_from=read_note(path, MOVED_FROM_NAME),
                    moving_to=read_note(path, MOVING_TO_NAME),
                    reach=(segments[-1].name, segments[-1].stat().st_size) if segments else ("", 0),
                )
        except LogStorageError:
            return cls(
                home=home, path=path, topic_id=None, moved_from=None, moving_to=None, reach=("", 0)
            )


def copies_of_one_move(found: Iterable[FoundLog]) -> tuple[FoundLog, FoundLog] | None:
    """The copy to keep and the one to put aside of two that a crash at the end of a move has left; None: there are none.

    The log goes on in its new directory only when everything is there, and goes on in the old one only when the move has
    failed: what reaches further is the log.
    """
    candidates = list(found)
    for new in candidates:
        for old in candidates:
            if old is not new and old.home.id == new.moved_from and old.topic_id == new.topic_id:
                return (old, new) if old.reach > new.reach else (new, old)
    return None
