"""What offset and time index have in common: entries of one size, in order, relative to a base offset (K-6.3)."""

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Final, Generic, TypeVar

from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats.checksum import Buffer

__all__ = ["MAX_RELATIVE", "EntryIndex"]

MAX_RELATIVE: Final = 0x7FFFFFFF
"""The largest offset relative to the base offset that an entry can hold."""

E = TypeVar("E")


class EntryIndex(ABC, Generic[E]):
    """Reader over the bytes of an index; entries are unpacked only when needed.

    Bytes of an incomplete last entry are not read; `sanity_check` reports them.
    """

    __slots__ = ("_count", "_data", "base_offset")

    KIND: ClassVar[str]
    ENTRY_BYTES: ClassVar[int]

    def __init__(self, data: Buffer, base_offset: int) -> None:
        """Look at an index.

        Args:
            data: The index without preallocated zeros behind its entries.
            base_offset: Base offset of the segment, which entries are relative to.
        """
        self._data = data
        self._count = len(data) // self.ENTRY_BYTES
        self.base_offset = base_offset

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> E:
        if not 0 <= index < self._count:
            raise IndexError(index)
        return self._entry(index)

    def entries(self) -> Iterator[E]:
        """Yield all entries in file order."""
        return map(self._entry, range(self._count))

    @abstractmethod
    def _entry(self, index: int) -> E:
        """The entry at an index that is in range."""

    def _check_size(self) -> None:
        if len(self._data) % self.ENTRY_BYTES:
            raise CorruptIndexError(
                f"{self.KIND} of {len(self._data)} bytes is not a multiple of {self.ENTRY_BYTES}"
            )

    def _check_last_offset(self, offset: int) -> None:
        if offset < self.base_offset:
            raise CorruptIndexError(
                f"{self.KIND}: last offset {offset} is below base offset {self.base_offset}"
            )

    def _first_slot(self, field: struct.Struct, field_position: int, bound: int) -> int:
        """Return the first entry whose field reaches the bound; the entry count if none does."""
        data, size, low, high = self._data, self.ENTRY_BYTES, 0, self._count
        while low < high:
            middle = (low + high) // 2
            (value,) = field.unpack_from(data, middle * size + field_position)
            if value < bound:
                low = middle + 1
            else:
                high = middle
        return low
