"""What handlers need of tiered storage; implemented by `aquifer_broker.tiering`, absent when it is disabled (SR-1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from aquifer_core.formats.transaction_index import AbortedTransaction

from aquifer_broker.log.log_values import FetchIsolation, TimestampAndOffset
from aquifer_broker.log.partition_log import PartitionLog
from aquifer_broker.protocol.codec import BufferChain

__all__ = ["RemoteLog", "RemoteRead", "RemoteReadRequest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteReadRequest:
    """A fetch offset that is below the local log and not below the log start.

    `reader` is who asks, compared by identity: what can be read at once is shared out between readers.
    """

    log: PartitionLog
    leader_epoch: int
    fetch_offset: int
    max_bytes: int
    min_one_batch: bool
    isolation: FetchIsolation
    reader: object | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteRead:
    """Records from remote storage; `aborted_transactions` None unless the isolation was TXN_COMMITTED."""

    records: bytes | memoryview | BufferChain
    aborted_transactions: Sequence[AbortedTransaction] | None = None


class RemoteLog(Protocol):
    """Remote part of the logs this broker leads."""

    async def read(self, request: RemoteReadRequest) -> RemoteRead:
        """Reads; when the caller gives up, the read goes on and fills the cache.

        Raises:
            QuotaExceededError: queue full or quota spent; `retry_after_ms` is the throttle time (SR-9).
            UnavailableError: manager, metadata or store do not answer.
            OffsetOutOfRangeError, RemoteResourceNotFoundError: not there, or deleted meanwhile.
        """
        ...

    def is_stalled(self, request: RemoteReadRequest) -> bool:
        """Whether a read that is not done in time is to be answered with an error: nothing has answered reads for long."""
        ...

    async def offset_for_timestamp(
        self, log: PartitionLog, timestamp_ms: int
    ) -> TimestampAndOffset | None:
        """First remote record at or after a time, below the local log; None: look locally (SR-26)."""
        ...

    def log_start_raised(self, log: PartitionLog, leader_epoch: int) -> None:
        """DeleteRecords moved the log start: remote cleaning is scheduled, nothing waits for it (SR-25)."""
        ...
