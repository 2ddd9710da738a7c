"""Primitives of Kafka's flexible message versions: compact strings, arrays and bytes, tagged fields (KIP-482)."""

import struct
from collections.abc import Callable
from typing import TypeVar

from aquifer_core.errors import CorruptRecordError
from aquifer_core.ids import KafkaUuid

T = TypeVar("T")

_LONGEST_VARINT_BYTES = 5
_UUID_BYTES = 16


class FlexibleReader:
    """Reads one message from its beginning; every method raises CorruptRecordError when the message ends too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def uvarint(self) -> int:
        """An unsigned number of variable length."""
        value = 0
        for number in range(_LONGEST_VARINT_BYTES):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << (7 * number)
            if byte < 0x80:
                return value
        raise CorruptRecordError(f"variable length number at byte {self._position} is too long")

    def int8(self) -> int:
        """One byte."""
        return int(struct.unpack(">b", self._take(1))[0])

    def int32(self) -> int:
        """Four bytes."""
        return int(struct.unpack(">i", self._take(4))[0])

    def int64(self) -> int:
        """Eight bytes."""
        return int(struct.unpack(">q", self._take(8))[0])

    def uuid(self) -> str:
        """An id in its 22-character form."""
        return str(KafkaUuid(self._take(_UUID_BYTES)))

    def nullable_bytes(self) -> bytes | None:
        """Bytes with their length, or null."""
        length = self.uvarint()
        return None if length == 0 else self._take(length - 1)

    def string(self) -> str:
        """Text that is not null."""
        raw = self.nullable_bytes()
        if raw is None:
            raise CorruptRecordError("a text is null that must not be")
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise CorruptRecordError("a text is not in UTF-8") from error

    def array(self, read_item: Callable[[], T]) -> list[T]:
        """Items, each read by a function."""
        return [read_item() for _ in range(self.uvarint() - 1)]

    def tagged_fields(self) -> dict[int, bytes]:
        """What ends every structure: tag -> raw value."""
        found = {}
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            found[tag] = self._take(self.uvarint())
        return found

    def _take(self, count: int) -> bytes:
        end = self._position + count
        if end > len(self._data):
            raise CorruptRecordError(f"a record of {len(self._data)} bytes ends too early")
        taken = self._data[self._position : end]
        self._position = end
        return taken


class FlexibleWriter:
    """Writes one message."""

    def __init__(self) -> None:
        self._out = bytearray()

    def getvalue(self) -> bytes:
        """What was written so far."""
        return bytes(self._out)

    def uvarint(self, value: int) -> None:
        """An unsigned number of variable length."""
        while value > 0x7F:
            self._out.append((value & 0x7F) | 0x80)
            value >>= 7
        self._out.append(value)

    def int8(self, value: int) -> None:
        """One byte."""
        self._out += struct.pack(">b", value)

    def int32(self, value: int) -> None:
        """Four bytes."""
        self._out += struct.pack(">i", value)

    def int64(self, value: int) -> None:
        """Eight bytes."""
        self._out += struct.pack(">q", value)

    def uuid(self, text: str) -> None:
        """An id given in its 22-character form."""
        self._out += KafkaUuid.parse(text).raw

    def nullable_bytes(self, value: bytes | None) -> None:
        """Bytes with their length, or null."""
        self.uvarint(0 if value is None else len(value) + 1)
        self._out += value or b""

    def string(self, value: str) -> None:
        """Text that is not null."""
        self.nullable_bytes(value.encode())

    def array_length(self, count: int) -> None:
        """Begins an array."""
        self.uvarint(count + 1)

    def tagged_fields(self, fields: dict[int, bytes] | None = None) -> None:
        """Ends a structure."""
        fields = fields or {}
        self.uvarint(len(fields))
        for tag, raw in sorted(fields.items()):
            self.uvarint(tag)
            self.uvarint(len(raw))
            self._out += raw
