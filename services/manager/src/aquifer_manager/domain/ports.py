"""What the manager's decisions need of the world besides the two roles."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from aquifer_core.ids import TopicIdPartition
from aquifer_core.leader_epoch import LeaderEpochCache, LeaderEpochEntry
from aquifer_core.segment import CopyResult, IndexType, RemoteLogSegmentMetadata

__all__ = [
    "BrokerConnections",
    "BrokerLogs",
    "IndexSource",
    "LogDescription",
    "LogQuery",
    "NoTelemetry",
    "RolledSegment",
    "Telemetry",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledSegment:
    """A local segment that is no longer written to.

    Attributes:
        end_offset: the next segment's base offset - 1.
        size_bytes: of the `.log` file.
        max_timestamp_ms: -1 when unknown.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int
    has_aborted_transactions: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """Asks for one log; rolled segments that end at or after `segments_from_offset`, at most `max_segments`."""

    topic_id_partition: TopicIdPartition
    segments_from_offset: int = 0
    max_segments: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDescription:
    """State of one local log.

    Attributes:
        highest_remote_offset: the broker's view; -1 for none.
        leader_epochs: the leader epoch checkpoint, ascending.
        segments: rolled ones, oldest first.
        local_only_bytes: bytes above `highest_remote_offset`, the active segment included.
    """

    topic_id_partition: TopicIdPartition
    leader: bool
    leader_epoch: int
    log_start_offset: int
    local_log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    highest_remote_offset: int
    leader_epochs: tuple[LeaderEpochEntry, ...]
    segments: tuple[RolledSegment, ...] = ()
    local_only_bytes: int = 0
    local_bytes: int = 0
    local_segments: int = 0

    def epoch_cache(self) -> LeaderEpochCache:
        """The lineage, to ask questions of."""
        return LeaderEpochCache(self.leader_epochs)

    def lineage(self) -> dict[int, int]:
        """Leader epoch -> start offset, ascending."""
        return {entry.epoch: entry.start_offset for entry in self.leader_epochs}


class BrokerLogs(Protocol):
    """The local logs of one broker. Every call has a deadline and raises `UnavailableError` when the broker does not answer.

    Calls with a leader epoch raise `NotLeaderError` or `StaleLeaderEpochError` when it is not the broker's current one.
    """

    async def describe_logs(self, queries: Sequence[LogQuery]) -> list[LogDescription | None]:
        """State of many logs, in the order asked; None for a partition that the broker does not host."""
        ...

    async def copy_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        leader_epoch: int,
        *,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> CopyResult:
        """Uploads a rolled segment. Cancelling stops the upload and removes what was written.

        Args:
            metadata: of the copy.
            leader_epoch: must be the broker's current one.
            on_progress: told how many bytes were sent in all, whenever it becomes more.
        """
        ...

    async def update_remote_log_offsets(
        self,
        topic_id_partition: TopicIdPartition,
        leader_epoch: int,
        *,
        log_start_offset: int | None = None,
        highest_remote_offset: int | None = None,
    ) -> int:
        """Raises the broker's remote offsets; lower values change nothing. Answers its log start offset afterwards."""
        ...

    async def roll_segment(self, topic_id_partition: TopicIdPartition, leader_epoch: int) -> int:
        """Rolls a non-empty active segment; answers the active segment's base offset."""
        ...


class BrokerConnections(Protocol):
    """Where the logs of brokers are reached."""

    def logs_at(self, address: str) -> BrokerLogs:
        """The logs of the broker at `host:port`; connects when needed."""
        ...

    async def forget(self, address: str) -> None:
        """Closes what was opened to an address."""
        ...


class IndexSource(Protocol):
    """Whole indexes of remote segments, kept for repeated use."""

    async def index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """A verified index; empty for a transaction index that the segment does not have.

        Raises:
            RemoteResourceNotFoundError: no such segment.
            CorruptIndexError: the index in the store is damaged.
        """
        ...


class Telemetry(Protocol):
    """Spans and counters. Names without prefix: `copy.bytes`."""

    def span(
        self, name: str, topic_id_partition: TopicIdPartition, attributes: Mapping[str, int | str]
    ) -> AbstractContextManager[None]:
        """A span around the block; what is raised marks it as failed."""
        ...

    def count(self, name: str, value: int, topic: str) -> None:
        """Adds to a counter."""
        ...


class NoTelemetry:
    """Telemetry that goes nowhere."""

    class _Nothing(AbstractContextManager[None]):
        def __exit__(self, *_: object) -> None:
            """Nothing to end."""

    def span(
        self, name: str, topic_id_partition: TopicIdPartition, attributes: Mapping[str, int | str]
    ) -> AbstractContextManager[None]:
        """Nothing."""
        del name, topic_id_partition, attributes
        return self._Nothing()

    def count(self, name: str, value: int, topic: str) -> None:
        """Nothing."""
