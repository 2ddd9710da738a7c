"""What a log remembers of one idempotent or transactional producer (Kafka's `ProducerStateEntry`)."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from aquifer_core.formats.producer_snapshot import ProducerSnapshotEntry

__all__ = ["BatchMetadata", "ProducerEntry", "is_next_sequence"]

_REMEMBERED_BATCHES: Final = 5
_MAX_SEQUENCE: Final = 2**31 - 1


class BatchMetadata(NamedTuple):
    """A batch that was appended."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


@dataclass(slots=True, kw_only=True)
class ProducerEntry:
    """State of one producer id.

    Attributes:
        batches: The last five batches of the current epoch, oldest first, for the detection of duplicates.
        last_offset: Of the last batch or marker; -1 for none.
        coordinator_epoch: Of the coordinator that wrote the last marker; -1 for none.
        txn_first_offset: First offset of the open transaction; None when there is none.
    """

    producer_id: int
    epoch: int = -1
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_BATCHES))
    last_timestamp_ms: int = -1
    coordinator_epoch: int = -1
    txn_first_offset: int | None = None

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; -1 when no batch of this epoch is known."""
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        """Offset of the last record; -1 when no batch of this epoch is known."""
        return self.batches[-1].last_offset if self.batches else -1

    def move_to_epoch(self, epoch: int) -> None:
        """Starts a new producer epoch, which forgets the batches of the one before."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()

    def find_duplicate(
        self, epoch: int, first_sequence: int, last_sequence: int
    ) -> BatchMetadata | None:
        """The remembered batch with exactly these sequences."""
        if epoch != self.epoch:
            return None
        for batch in self.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                return batch
        return None

    def to_snapshot(self) -> ProducerSnapshotEntry:
        """The entry as a snapshot stores it: only the last batch is kept."""
        last = self.batches[-1] if self.batches else None
        return ProducerSnapshotEntry(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            last_sequence=self.last_sequence,
            last_offset=self.last_offset,
            offset_delta=last.last_offset - last.first_offset if last else 0,
            timestamp_ms=self.last_timestamp_ms,
            coordinator_epoch=self.coordinator_epoch,
            current_txn_first_offset=-1 if self.txn_first_offset is None else self.txn_first_offset,
        )

    @classmethod
    def from_snapshot(cls, stored: ProducerSnapshotEntry) -> "ProducerEntry":
        """The entry that a snapshot describes."""
        entry = cls(
            producer_id=stored.producer_id,
            epoch=stored.producer_epoch,
            last_timestamp_ms=stored.timestamp_ms,
            coordinator_epoch=stored.coordinator_epoch,
            txn_first_offset=(
                stored.current_txn_first_offset if stored.current_txn_first_offset >= 0 else None
            ),
        )
        if stored.last_offset >= 0:
            first_sequence = _sequence_before(stored.last_sequence, stored.offset_delta)
            entry.batches.append(
                BatchMetadata(
                    first_sequence,
                    stored.last_sequence,
                    stored.last_offset - stored.offset_delta,
                    stored.last_offset,
                    stored.timestamp_ms,
                )
            )
        return entry


def is_next_sequence(last_sequence: int, first_sequence: int) -> bool:
    """Whether a batch follows the last one; sequences wrap to 0 after 2^31 - 1."""
    if last_sequence == _MAX_SEQUENCE:
        return first_sequence == 0
    return first_sequence == last_sequence + 1


def _sequence_before(sequence: int, distance: int) -> int:
    return (sequence - distance) & _MAX_SEQUENCE
