"""Producers of one log: duplicates, sequences, epochs, open transactions (Kafka's `ProducerStateManager`)."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from aquifer_core.formats.control_records import ControlRecordType, EndTxnMarker
from aquifer_core.formats.producer_snapshot import (
    ProducerSnapshotEntry,
    decode_snapshot,
    encode_snapshot,
)
from aquifer_core.formats.record_batch import RecordBatch
from aquifer_core.formats.transaction_index import AbortedTransaction

from aquifer_broker.log.log_errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from aquifer_broker.log.log_values import AppendedBatch, AppendOrigin
from aquifer_broker.log.producer_entry import BatchMetadata, ProducerEntry, is_next_sequence

__all__ = ["CompletedTransaction", "ProducerState"]


class CompletedTransaction(NamedTuple):
    """A transaction whose marker was appended. `last_offset` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerState:
    """State of all producers of a log for all records below `map_end_offset`."""

    def __init__(
        self, map_end_offset: int = 0, entries: Iterable[ProducerSnapshotEntry] = ()
    ) -> None:
        self._entries = {
            stored.producer_id: ProducerEntry.from_snapshot(stored) for stored in entries
        }
        # first offset -> producer id, for transactions without a marker
        self._ongoing = {
            entry.txn_first_offset: entry.producer_id
            for entry in self._entries.values()
            if entry.txn_first_offset is not None
        }
        # first offset -> marker's offset, for transactions whose marker is not below the high watermark
        self._unreplicated: dict[int, int] = {}
        self.map_end_offset = map_end_offset

    @classmethod
    def from_snapshot(cls, offset: int, data: bytes) -> "ProducerState":
        """State before `offset` as a snapshot file holds it.

        Raises:
            CorruptIndexError: The snapshot is damaged.
        """
        return cls(offset, decode_snapshot(data))

    def to_snapshot(self) -> bytes:
        """The snapshot file for `map_end_offset`."""
        return encode_snapshot(entry.to_snapshot() for entry in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> Iterator[ProducerEntry]:
        """Every producer known."""
        return iter(self._entries.values())

    def check(
        self, batch: RecordBatch, origin: AppendOrigin, marker: EndTxnMarker | None = None
    ) -> BatchMetadata | None:
        """Judges a batch before it is appended; changes nothing.

        Returns:
            The batch as it was appended before when a client repeats itself, else None.

        Raises:
            OutOfOrderSequenceError, InvalidProducerEpochError, InvalidTxnStateError, TransactionCoordinatorFencedError.
        """
        entry = self._entries.get(batch.producer_id)
        if entry is None or batch.producer_id < 0 or origin is AppendOrigin.REPLICATION:
            return None
        if origin is AppendOrigin.CLIENT:
            duplicate = entry.find_duplicate(
                batch.producer_epoch, batch.base_sequence, batch.last_sequence
            )
            if duplicate is not None:
                return duplicate
        _check_epoch(entry, batch)
        if marker is not None:
            _check_coordinator(entry, marker)
        elif origin is AppendOrigin.CLIENT:
            _check_sequence(entry, batch)
            _check_transaction(entry, batch)
        return None

    def apply(
        self,
        batch: RecordBatch,
        appended: AppendedBatch,
        marker: EndTxnMarker | None = None,
    ) -> CompletedTransaction | None:
        """Takes a batch into account that was appended; returns the transaction that it ends."""
        first_offset, last_offset, _, timestamp_ms = appended
        self.map_end_offset = last_offset + 1
        producer_id = batch.producer_id
        if producer_id < 0:
            return None
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id=producer_id)
        if batch.producer_epoch >= entry.epoch:
            entry.move_to_epoch(batch.producer_epoch)
        entry.last_timestamp_ms = timestamp_ms
        if marker is not None:
            return self._end_transaction(entry, marker, last_offset)
        entry.batches.append(
            BatchMetadata(
                batch.base_sequence,
                batch.last_sequence,
                first_offset,
                last_offset,
                timestamp_ms,
            )
        )
        if batch.is_transactional and entry.txn_first_offset is None:
            entry.txn_first_offset = first_offset
            self._ongoing[first_offset] = producer_id
        return None

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of a transaction that is open, or whose marker is not below the high watermark."""
        if not self._ongoing and not self._unreplicated:
            return None
        return min([*self._ongoing, *self._unreplicated])

    def aborted_transaction(self, completed: CompletedTransaction) -> AbortedTransaction:
        """The transaction index entry of an aborted transaction.

        Its last stable offset is the first offset of the oldest transaction still open, else the offset after the marker.
        """
        stable = min(self._ongoing, default=completed.last_offset + 1)
        return AbortedTransaction(
            producer_id=completed.producer_id,
            first_offset=completed.first_offset,
            last_offset=completed.last_offset,
            last_stable_offset=stable,
        )

    def on_high_watermark(self, high_watermark: int) -> None:
        """Forgets ended transactions whose markers are now below the high watermark."""
        if self._unreplicated:
            self._unreplicated = {
                first: last for first, last in self._unreplicated.items() if last >= high_watermark
            }

    def remove_expired(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets producers without an open transaction that were silent too long; returns how many."""
        expired = [
            entry.producer_id
            for entry in self._entries.values()
            if entry.txn_first_offset is None and now_ms - entry.last_timestamp_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        return len(expired)

    def truncate_start(self, log_start_offset: int) -> None:
        """Forgets ended transactions that lie below the start of the log."""
        self._unreplicated = {
            first: last for first, last in self._unreplicated.items() if last >= log_start_offset
        }

    def _end_transaction(
        self, entry: ProducerEntry, marker: EndTxnMarker, marker_offset: int
    ) -> CompletedTransaction | None:
        entry.coordinator_epoch = max(entry.coordinator_epoch, marker.coordinator_epoch)
        first_offset, entry.txn_first_offset = entry.txn_first_offset, None
        if first_offset is None:
            return None
        self._ongoing.pop(first_offset, None)
        self._unreplicated[first_offset] = marker_offset
        return CompletedTransaction(
            entry.producer_id,
            first_offset,
            marker_offset,
            marker.control_type is ControlRecordType.ABORT,
        )


def _check_epoch(entry: ProducerEntry, batch: RecordBatch) -> None:
    if batch.producer_epoch < entry.epoch:
        raise InvalidProducerEpochError(
            f"epoch {batch.producer_epoch} of producer {batch.producer_id} is below the last seen, {entry.epoch}"
        )


def _check_coordinator(entry: ProducerEntry, marker: EndTxnMarker) -> None:
    if marker.coordinator_epoch < entry.coordinator_epoch:
        raise TransactionCoordinatorFencedError(
            f"coordinator epoch {marker.coordinator_epoch} for producer {entry.producer_id} "
            f"is below the last seen, {entry.coordinator_epoch}"
        )


def _check_sequence(entry: ProducerEntry, batch: RecordBatch) -> None:
    first = batch.base_sequence
    if entry.epoch < 0:
        return
    in_order = (
        first == 0
        if batch.producer_epoch != entry.epoch
        else is_next_sequence(entry.last_sequence, first)
    )
    if not in_order:
        raise OutOfOrderSequenceError(
            f"sequence {first} of producer {batch.producer_id} epoch {batch.producer_epoch} "
            f"does not follow {entry.last_sequence} of epoch {entry.epoch}"
        )


def _check_transaction(entry: ProducerEntry, batch: RecordBatch) -> None:
    if entry.txn_first_offset is not None and not batch.is_transactional:
        raise InvalidTxnStateError(
            f"producer {batch.producer_id} has an open transaction from offset {entry.txn_first_offset} "
            "and sent a batch that is not transactional"
        )
