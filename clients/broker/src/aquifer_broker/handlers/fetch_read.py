"""One pass over the partitions of a fetch: local reads, and what must be read remotely."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import structlog
from aquifer_core.errors import AquiferError, OffsetOutOfRangeError
from aquifer_core.formats.checksum import Buffer
from aquifer_core.formats.transaction_index import AbortedTransaction
from aquifer_core.ids import TopicIdPartition
from kio.schema.errors import ErrorCode

from aquifer_broker.cluster.hosted_partitions import HostedPartition
from aquifer_broker.handlers.error_codes import error_code_of
from aquifer_broker.handlers.remote_log import RemoteReadRequest
from aquifer_broker.handlers.services import BrokerServices
from aquifer_broker.log.log_values import FetchIsolation, LogOffsets
from aquifer_broker.protocol.codec import BufferChain

__all__ = ["FetchPass", "FetchTarget", "PartitionRead"]

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchTarget:
    """A partition of a fetch request; `topic` None: the request's id or name is of no known topic, or its partition of none at all."""

    key: tuple[Any, int]
    topic: TopicIdPartition | None
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1


@dataclass(slots=True, kw_only=True)
class PartitionRead:
    """Outcome for one target; `remote` is set while the records have yet to come from remote storage."""

    target: FetchTarget
    error: ErrorCode = ErrorCode.none
    hosted: HostedPartition | None = None
    offsets: LogOffsets | None = None
    records: Buffer | BufferChain = b""
    aborted: Sequence[AbortedTransaction] | None = None
    diverging: tuple[int, int] | None = None
    remote: RemoteReadRequest | None = None
    log_size_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of records."""
        return len(self.records)

    @property
    def ends_the_wait(self) -> bool:
        """Whether the client must be told at once."""
        return self.error is not ErrorCode.none or self.diverging is not None


class FetchPass:
    """Reads targets in order within one byte budget; the first batch of the response always fits (KIP-74).

    A context manager: what was read locally counts in the response budget, and is kept, until it is left.

    Attributes:
        cut_short: records were left out because the response budget is used up.
    """

    def __init__(
        self,
        services: BrokerServices,
        *,
        isolation: FetchIsolation,
        is_follower: bool,
        max_bytes: int,
        reader: object | None = None,
    ) -> None:
        self._services = services
        self._reader = reader
        self._isolation = isolation
        self._is_follower = is_follower
        self._remaining_bytes = max_bytes
        self._min_one_batch = True
        self._reads: list[PartitionRead] = []
        self._held_bytes = 0
        self.cut_short = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for read in self._reads:
            read.records = b""
        self._services.response_budget.release(self._held_bytes)
        self._held_bytes = 0

    async def read(self, target: FetchTarget) -> PartitionRead:
        """Reads one target; never raises for what has an error code."""
        read = PartitionRead(target=target)
        self._reads.append(read)
        hosted = self._locate(target)
        if isinstance(hosted, ErrorCode):
            read.error = hosted
            return read
        read.hosted = hosted
        try:
            read.log_size_bytes = hosted.log.size_bytes
            read.offsets = hosted.log.offsets
            if not self._diverges(read, hosted):
                await self._read_local(read, hosted)
        except OffsetOutOfRangeError:
            self._out_of_range(read, hosted)
        except AquiferError as error:
            read.error = error_code_of(error, unavailable=ErrorCode.kafka_storage_error)
        except Exception:
            logger.exception("read_failed", partition=str(target.topic))
            read.error = ErrorCode.unknown_server_error
        return read

    def _locate(self, target: FetchTarget) -> HostedPartition | ErrorCode:
        by_id = not isinstance(target.key[0], str) and target.partition >= 0
        unknown = ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
        if target.topic is None:
            return unknown
        hosted = self._services.partitions.leader(
            target.topic.topic, target.partition, target.current_leader_epoch
        )
        if isinstance(hosted, HostedPartition) and hosted.topic_id_partition != target.topic:
            # The topic was deleted while the fetch waited, and another has its name.
            return unknown
        return hosted

    async def _read_local(self, read: PartitionRead, hosted: HostedPartition) -> None:
        wanted_bytes = self._wanted_bytes(read)
        granted_bytes = self._granted_bytes(wanted_bytes)
        result = await hosted.log.read(
            read.target.fetch_offset,
            granted_bytes,
            min_one_batch=self._min_one_batch,
            isolation=self._isolation,
        )
        read.records = result.records
        read.offsets = result.offsets
        read.aborted = result.aborted_transactions
        self._spend(read.size_bytes)
        self._services.response_budget.hold(read.size_bytes)
        self._held_bytes += read.size_bytes
        self.cut_short |= granted_bytes < wanted_bytes

    def _wanted_bytes(self, read: PartitionRead) -> int:
        return max(0, min(read.target.max_bytes, self._remaining_bytes))

    def _granted_bytes(self, wanted_bytes: int) -> int:
        return self._services.response_budget.grant(wanted_bytes, self._held_bytes)

    def _spend(self, size_bytes: int) -> None:
        self._remaining_bytes -= size_bytes
        if size_bytes:
            self._min_one_batch = False

    def _out_of_range(self, read: PartitionRead, hosted: HostedPartition) -> None:
        """Below the local log lies what is remote; everything else is outside the log (K-3.7)."""
        log = hosted.log
        offset = read.target.fetch_offset
        is_remote = log.tiering_enabled and (
            log.log_start_offset <= offset < log.local_log_start_offset
        )
        if not is_remote:
            read.error = ErrorCode.offset_out_of_range
        elif self._is_follower:
            read.error = ErrorCode.offset_moved_to_tiered_storage
        elif self._services.remote is None:
            read.error = ErrorCode.kafka_storage_error
        elif (granted_bytes := self._granted_bytes(self._wanted_bytes(read))) > 0 or (
            self._min_one_batch
        ):
            # A client may allow no bytes at all and get the first batch all the same.
            size_bytes = max(1, granted_bytes)
            read.remote = RemoteReadRequest(
                log=log,
                leader_epoch=hosted.leader_epoch,
                fetch_offset=offset,
                max_bytes=size_bytes,
                min_one_batch=self._min_one_batch,
                isolation=self._isolation,
                reader=self._reader,
            )
            self._spend(size_bytes)

    def _diverges(self, read: PartitionRead, hosted: HostedPartition) -> bool:
        """Tells a client that its log branched off, where it says what it has (KIP-595)."""
        target = read.target
        if target.last_fetched_epoch < 0:
            return False
        epoch, end_offset = hosted.log.end_offset_for_epoch(target.last_fetched_epoch)
        if epoch == -1:
            read.error = ErrorCode.offset_out_of_range
            return True
        if epoch < target.last_fetched_epoch or end_offset < target.fetch_offset:
            read.diverging = (epoch, end_offset)
            return True
        return False
