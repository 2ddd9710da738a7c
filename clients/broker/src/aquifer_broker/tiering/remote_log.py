"""The remote part of the logs this broker leads, as handlers use it."""

from collections.abc import Sequence
from typing import Final

from aquifer_core.formats.transaction_index import AbortedTransaction
from aquifer_core.segment import IsolationLevel

from aquifer_broker.handlers.remote_log import RemoteRead, RemoteReadRequest
from aquifer_broker.log.log_values import FetchIsolation, TimestampAndOffset
from aquifer_broker.log.partition_log import PartitionLog
from aquifer_broker.protocol.codec import BufferChain
from aquifer_broker.tiering.announcer import Announcer
from aquifer_broker.tiering.manager_client import ManagerClient
from aquifer_broker.tiering.read_silence import ReadSilence
from aquifer_broker.tiering.remote_fetch import AbortedRange, RemoteFetch
from aquifer_broker.tiering.remote_reads import ReadRecords, RemoteReads

__all__ = ["TieredRemoteLog"]

_FIND_OFFSET_DEADLINE_S: Final = 30.0


class TieredRemoteLog:
    """Implements `handlers.remote_log.RemoteLog`."""

    def __init__(
        self,
        manager: ManagerClient,
        reads: RemoteReads,
        announcer: Announcer,
        silence: ReadSilence,
    ) -> None:
        self._manager = manager
        self._reads = reads
        self._silence = silence
        self._announcer = announcer

    async def read(self, request: RemoteReadRequest) -> RemoteRead:
        """Reads; when the caller gives up, the read goes on and fills the cache.

        Raises:
            QuotaExceededError: queue full or quota spent; `retry_after_ms` is the throttle time (SR-9).
            UnavailableError: manager, metadata or store do not answer.
            OffsetOutOfRangeError, RemoteResourceNotFoundError: not there, or deleted meanwhile.
        """
        committed = request.isolation is FetchIsolation.TXN_COMMITTED
        read = await self._read_settled(request)
        if read.plan.segment is None:
            return await _read_behind_hole(request)
        return RemoteRead(
            records=_chain(read.part.pieces),
            aborted_transactions=_aborted(request, read) if committed else None,
        )

    def is_stalled(self, request: RemoteReadRequest) -> bool:
        """Whether a read that is not done in time is to be answered with an error: nothing has answered reads for long."""
        return self._silence.is_stalled(request.log.topic_id_partition)

    async def _read_settled(self, request: RemoteReadRequest) -> ReadRecords:
        """Reads so that what the local log adds to the answer is all that the answer lacks.

        What is below the local log was remote before the read, and the read finds it: aborted transactions, and the record behind a
        hole. What is in the local log is looked up after the read. That leaves no gap only if the local log still begins where it
        did: else the read is repeated.
        """
        committed = request.isolation is FetchIsolation.TXN_COMMITTED
        while True:
            local_log_start_offset = request.log.local_log_start_offset
            read = await self._read(request)
            if request.log.local_log_start_offset == local_log_start_offset:
                return read
            if read.plan.segment is not None and not committed:
                return read

    async def _read(self, request: RemoteReadRequest) -> ReadRecords:
        epochs = request.log.leader_epochs
        epoch = epochs.epoch_for_offset(request.fetch_offset)
        committed = request.isolation is FetchIsolation.TXN_COMMITTED
        return await self._reads.read(
            RemoteFetch(
                topic_id_partition=request.log.topic_id_partition,
                leader_epoch=request.leader_epoch if epoch is None else epoch,
                fetch_offset=request.fetch_offset,
                max_bytes=request.max_bytes,
                min_one_batch=request.min_one_batch,
                isolation=(
                    IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
                ),
                lineage=tuple(epochs.as_map().items()),
                local_log_start_offset=request.log.local_log_start_offset,
            ),
            request.reader,
        )

    async def offset_for_timestamp(
        self, log: PartitionLog, timestamp_ms: int
    ) -> TimestampAndOffset | None:
        """First remote record at or after a time, below the local log; None: look locally, at once (SR-26).

        What leaves the local log during the question was not asked for, and will not be found locally: it is asked again.
        """
        while True:
            local_log_start_offset = log.local_log_start_offset
            found = await self._manager.find_offset(
                log.topic_id_partition,
                log.leader_epochs.as_map(),
                timestamp_ms,
                log_start_offset=log.log_start_offset,
                local_log_start_offset=local_log_start_offset,
                deadline_s=_FIND_OFFSET_DEADLINE_S,
            )
            if found is not None or log.local_log_start_offset == local_log_start_offset:
                return found

    def log_start_raised(self, log: PartitionLog, leader_epoch: int) -> None:
        """DeleteRecords moved the log start: remote cleaning is scheduled, nothing waits for it (SR-25)."""
        self._announcer.log_start_raised(log.topic_id_partition, leader_epoch, log.log_start_offset)


async def _read_behind_hole(request: RemoteReadRequest) -> RemoteRead:
    """No remote batch is left at or after the offset: the next one is the first of the local log."""
    log = request.log
    read = await log.read(
        log.local_log_start_offset,
        request.max_bytes,
        min_one_batch=request.min_one_batch,
        isolation=request.isolation,
    )
    return RemoteRead(
        records=_as_bytes(read.records), aborted_transactions=read.aborted_transactions
    )


def _aborted(request: RemoteReadRequest, read: ReadRecords) -> Sequence[AbortedTransaction]:
    """What remote segments know, and what only the local segments after them know (K-3.8).

    The read may be of more than this part. A transaction that ended before the part is left out: a consumer would take it for one
    that is still under way, and skip what its producer wrote next.
    """
    start, end = request.fetch_offset, read.part.end_offset
    if not read.part.size_bytes:
        return []
    local = request.log.aborted_transactions(start, end)
    ranges = [AbortedRange(each.producer_id, each.first_offset, each.last_offset) for each in local]
    known = dict.fromkeys(
        each
        for each in (*read.plan.aborted, *ranges)
        if each.last_offset >= start and each.first_offset < end
    )
    return [
        AbortedTransaction(
            producer_id=each.producer_id,
            first_offset=each.first_offset,
            last_offset=each.last_offset,
            last_stable_offset=-1,
        )
        for each in known
    ]


def _chain(pieces: Sequence[bytes | memoryview]) -> bytes | memoryview | BufferChain:
    if not pieces:
        return b""
    return pieces[0] if len(pieces) == 1 else BufferChain(pieces)


def _as_bytes(records: bytes | bytearray | memoryview) -> bytes | memoryview:
    return memoryview(records) if isinstance(records, bytearray) else records
