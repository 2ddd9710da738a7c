"""The `.txnindex` file of a segment; absent until a transaction is aborted (K-6.3)."""

import os
from collections.abc import Sequence
from pathlib import Path

from aquifer_core.formats.transaction_index import (
    TRANSACTION_INDEX_ENTRY_BYTES,
    AbortedTransaction,
    decode_entries,
    encode_entry,
    sanity_check,
)

__all__ = ["TransactionIndexFile"]


class TransactionIndexFile:
    """Aborted transactions of one segment in order of their markers."""

    __slots__ = ("_entries", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: list[AbortedTransaction] | None = None if path.exists() else []

    @property
    def entries(self) -> Sequence[AbortedTransaction]:
        """All entries, read from the file on first use.

        Raises:
            CorruptIndexError: The file is malformed.
        """
        if self._entries is None:
            self._entries = list(decode_entries(self.path.read_bytes()))
        return self._entries

    @property
    def is_empty(self) -> bool:
        """Whether no transaction was aborted in the segment."""
        return not self.entries

    def append(self, transaction: AbortedTransaction) -> None:
        """Adds an entry and writes it, without fsync."""
        entries = list(self.entries)
        with self.path.open("ab") as file:
            file.write(encode_entry(transaction))
        self._entries = [*entries, transaction]

    def truncate(self, offset: int) -> None:
        """Drops entries whose marker lies at or after an offset."""
        kept = [entry for entry in self.entries if entry.last_offset < offset]
        if len(kept) == len(self.entries):
            return
        if kept:
            os.truncate(self.path, len(kept) * TRANSACTION_INDEX_ENTRY_BYTES)
        else:
            self.path.unlink()
        self._entries = kept

    def sanity_check(self, base_offset: int) -> None:
        """Checks what Kafka checks when it opens the file.

        Raises:
            CorruptIndexError: An entry cannot be read or ends below the base offset.
        """
        if self.path.exists():
            sanity_check(self.path.read_bytes(), base_offset)

    def reset(self) -> None:
        """Removes the file, so that recovery can write it anew."""
        self.path.unlink(missing_ok=True)
        self._entries = []
