"""What a log needs from its surroundings."""

from collections.abc import Callable
from dataclasses import dataclass

from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_core.ports import Clock

from aquifer_broker.log.file_cleaner import FileCleaner
from aquifer_broker.log.storage_guard import StorageGuard

__all__ = ["LogResources"]


def _ignore(_: TopicIdPartition) -> None:
    return


@dataclass(frozen=True, slots=True, kw_only=True)
class LogResources:
    """Shared by the logs of one log dir.

    Attributes:
        guard: of the log dir.
        cleaner: removes files of deleted segments.
        on_rolled: told in the event loop of every roll; must not block.
        log_dir_id: directory id of the log dir.
    """

    guard: StorageGuard
    cleaner: FileCleaner
    clock: Clock
    on_rolled: Callable[[TopicIdPartition], None] = _ignore
    log_dir_id: KafkaUuid = KafkaUuid.ZERO
