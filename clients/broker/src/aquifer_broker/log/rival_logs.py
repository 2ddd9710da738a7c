"""Partitions of which it is not clear at the start which directory is the log, or whether the log is there at all."""

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

import structlog
from aquifer_core.ids import TopicIdPartition

from aquifer_broker.log.found_logs import FoundLog, copies_of_one_move
from aquifer_broker.log.log_dir import STRAY_SUFFIX, LogDir
from aquifer_broker.log.log_errors import LogStorageError
from aquifer_broker.log.move_notes import MOVING_TO_NAME, remove_note

__all__ = ["RivalLogs"]

logger = structlog.get_logger(__name__)

_Key = tuple[str, int]


class RivalLogs:
    """Directories that may be a partition's log, until the partition's topic id, or the operator, tells."""

    def __init__(self, may_be_behind: Callable[[FoundLog], bool]) -> None:
        """Prepares; `may_be_behind` says whether a log may have gone on in a dir that cannot be looked into."""
        self._may_be_behind = may_be_behind
        self._found: dict[_Key, list[FoundLog]] = {}

    @property
    def partitions(self) -> Collection[_Key]:
        """Partitions that are not settled."""
        return self._found.keys()

    def in_dir(self, log_dir: LogDir) -> Iterable[_Key]:
        """Those of them that have a directory in a log dir."""
        for key, found in self._found.items():
            if any(each.home is log_dir for each in found):
                yield key

    def sort_out(self, key: _Key, found: Iterable[FoundLog]) -> FoundLog | None:
        """Puts aside what a move has left behind; the log, where that leaves one for certain. Blocks."""
        rivals = list(found)
        while (copies := copies_of_one_move(rivals)) is not None:
            kept, other = copies
            logger.warning("moved_log_put_aside", path=str(other.path), kept=str(kept.path))
            _put_aside(key, other)
            rivals.remove(other)
        if len(rivals) == 1 and not self._may_be_behind(rivals[0]):
            with suppress(LogStorageError), rivals[0].home.guard:
                remove_note(rivals[0].path, MOVING_TO_NAME)
            return rivals[0]
        self._found[key] = rivals
        return None

    def settle(self, topic_id_partition: TopicIdPartition) -> FoundLog | None:
        """The log of a partition, whose directories of other topics are put aside; None: there is none. Idempotent. Blocks.

        Raises:
            LogStorageError: Which directory is the log is for people to say.
        """
        key = (topic_id_partition.topic, topic_id_partition.partition)
        rivals = self._found.get(key, [])
        ours = [each for each in rivals if each.topic_id in (None, topic_id_partition.topic_id)]
        if len(ours) == 1 and self._may_be_behind(ours[0]):
            raise LogStorageError(
                f"{topic_id_partition} may have gone on in a log dir that cannot be used, directory id {ours[0].moving_to}: "
                f"it was being moved there from {ours[0].path}"
            )
        if len(ours) > 1:
            raise LogStorageError(
                f"{topic_id_partition} is in several log dirs, {' and '.join(str(each.path) for each in ours)}: which of them "
                "has the records cannot be told; take the others out of their log dirs and start the broker again"
            )
        kept = ours[0] if ours else None
        self.disown(key, keep=kept)
        return kept

    def disown(self, key: _Key, keep: FoundLog | None = None) -> None:
        """Puts directories of a partition aside, under names ending in `-stray`. Idempotent. Blocks."""
        for each in self._found.pop(key, []):
            if each is not keep:
                logger.warning("duplicate_log_put_aside", path=str(each.path))
                _put_aside(key, each)


def _put_aside(key: _Key, found: FoundLog) -> None:
    found.home.checkpoints.forget(key)
    # If the dir has failed meanwhile, the directory is found again at the next start.
    with suppress(LogStorageError), found.home.guard:
        found.home.put_aside(found.path, STRAY_SUFFIX)
