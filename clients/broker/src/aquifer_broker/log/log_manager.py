"""All logs of a broker node over its log dirs (signatures under construction)."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from aquifer_core.ids import KafkaUuid, TopicIdPartition

from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.partition_log import PartitionLog


class LogManager:
    """Owner of every `PartitionLog`; an async context manager: entering loads (and recovers), leaving flushes and closes."""

    def __init__(
        self,
        log_dirs: Sequence[Path],
        *,
        broker_id: int,
        cluster_id: str,
        default_config: LogConfig,
        topic_configs: Mapping[str, LogConfig] | None = None,
        settings: object = None,
        clock: object = None,
    ) -> None: ...

    async def __aenter__(self) -> "LogManager": ...
    async def __aexit__(self, *exc: object) -> None: ...

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """The log if this broker has it.

        Raises:
            LogStorageError: it is in an offline log dir.
        """

    def logs(self) -> Iterable[PartitionLog]: ...

    async def open_log(
        self,
        topic_id_partition: TopicIdPartition,
        config: LogConfig | None = None,
        *,
        replicated: bool = False,
        log_dir: Path | None = None,
    ) -> PartitionLog:
        """The existing log or a new one. A log of another topic id under the same name is put aside and deleted."""

    async def delete_log(self, topic: str, partition: int) -> None:
        """Renames to `-delete` and removes later; idempotent."""

    async def delete_strays(self, known: Iterable[TopicIdPartition]) -> list[TopicIdPartition]:
        """Puts aside every log that the cluster metadata does not assign to this broker."""

    def update_topic_config(self, topic: str, config: LogConfig) -> None: ...

    def log_dir_states(self) -> Sequence[tuple[Path, KafkaUuid, bool]]:
        """(path, directory id, online)."""
