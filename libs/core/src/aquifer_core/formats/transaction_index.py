"""Transaction index: one 34-byte entry per aborted transaction (K-6.3)."""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats.checksum import Buffer

__all__ = [
    "TRANSACTION_INDEX_ENTRY_BYTES",
    "AbortedTransaction",
    "collect_aborted",
    "decode_entries",
    "encode_entry",
    "sanity_check",
]

_ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0

TRANSACTION_INDEX_ENTRY_BYTES: Final = _ENTRY.size


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedTransaction:
    """One aborted transaction of a partition.

    Attributes:
        producer_id: Who aborted.
        first_offset: First offset of the transaction.
        last_offset: Offset of the abort marker.
        last_stable_offset: The partition's last stable offset when the marker was appended.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_entry(transaction: AbortedTransaction) -> bytes:
    """Encode one entry."""
    return _ENTRY.pack(
        _VERSION,
        transaction.producer_id,
        transaction.first_offset,
        transaction.last_offset,
        transaction.last_stable_offset,
    )


def decode_entries(data: Buffer) -> Iterator[AbortedTransaction]:
    """Yield the entries in file order.

    Raises:
        CorruptIndexError: The size is not a multiple of the entry size, or an entry has a version
            above the known one.
    """
    if len(data) % TRANSACTION_INDEX_ENTRY_BYTES:
        raise CorruptIndexError(
            f"transaction index of {len(data)} bytes "
            f"is not a multiple of {TRANSACTION_INDEX_ENTRY_BYTES}"
        )
    for number, entry in enumerate(_ENTRY.iter_unpack(data)):
        version, producer_id, first_offset, last_offset, last_stable_offset = entry
        if version != _VERSION:
            raise CorruptIndexError(f"transaction index: entry {number} has version {version}")
        yield AbortedTransaction(
            producer_id=producer_id,
            first_offset=first_offset,
            last_offset=last_offset,
            last_stable_offset=last_stable_offset,
        )


def sanity_check(data: Buffer, base_offset: int) -> None:
    """Check what Kafka checks when it opens an index.

    Raises:
        CorruptIndexError: An entry cannot be read or ends below the segment's base offset.
    """
    for number, entry in enumerate(decode_entries(data)):
        if entry.last_offset < base_offset:
            raise CorruptIndexError(
                f"transaction index: entry {number} ends at {entry.last_offset}, "
                f"below base offset {base_offset}"
            )


def collect_aborted(
    entries: Iterable[AbortedTransaction], fetch_offset: int, upper_bound: int
) -> tuple[list[AbortedTransaction], bool]:
    """Choose the aborted transactions that a read of a range must carry (K-3.8).

    Args:
        entries: Entries of one segment, in file order.
        fetch_offset: Base offset of the first batch returned.
        upper_bound: Offset after the range returned, exclusive.

    Returns:
        The transactions, and whether the search is complete: an entry's last stable offset reached
        the upper bound. When it is not, the following segments must be searched too.
    """
    chosen: list[AbortedTransaction] = []
    for entry in entries:
        if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound:
            chosen.append(entry)
        if entry.last_stable_offset >= upper_bound:
            return chosen, True
    return chosen, False
