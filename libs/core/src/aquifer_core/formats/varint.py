"""Zig-zag variable length integers of record batches (K-6.2)."""

from aquifer_core.errors import CorruptRecordError

__all__ = ["append_varint", "read_varint", "read_varlong"]


def append_varint(out: bytearray, value: int) -> None:
    """Append a signed number of up to 64 bits."""
    encoded = (value << 1) ^ (value >> 63)
    while encoded > 0x7F:
        out.append((encoded & 0x7F) | 0x80)
        encoded >>= 7
    out.append(encoded)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Read a number of at most 5 bytes; returns it and the position after it.

    Raises:
        IndexError: The data ends inside the number.
        CorruptRecordError: The number is too long.
    """
    first = data[position]
    if first < 0x80:
        return (first >> 1) ^ -(first & 1), position + 1
    return _read_long_form(data, position, max_bytes=5)


def read_varlong(data: bytes, position: int) -> tuple[int, int]:
    """Read a number of at most 10 bytes; like `read_varint` otherwise."""
    return _read_long_form(data, position, max_bytes=10)


def _read_long_form(data: bytes, position: int, *, max_bytes: int) -> tuple[int, int]:
    encoded = 0
    for number in range(max_bytes):
        byte = data[position + number]
        encoded |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return (encoded >> 1) ^ -(encoded & 1), position + number + 1
    raise CorruptRecordError(f"variable length number at byte {position} is too long")
