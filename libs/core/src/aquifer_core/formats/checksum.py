"""CRC-32C over any buffer."""

from typing import Final, TypeAlias

import google_crc32c

__all__ = ["Buffer", "crc32c"]

Buffer: TypeAlias = bytes | bytearray | memoryview
"""What parsers of this package accept; a memoryview must be contiguous bytes."""

# The library takes only `bytes`, so other buffers are copied. Slices of this size keep the copy in
# the processor's cache and bound the extra memory; larger and smaller ones measured slower.
_SLICE_BYTES: Final = 256 * 1024


def crc32c(data: Buffer, crc: int = 0) -> int:
    """Return the CRC-32C of the data as an unsigned 32-bit number.

    Args:
        data: The bytes to check; `bytes` are not copied, other buffers are copied slice by slice.
        crc: The checksum of what came before, to continue it.
    """
    if isinstance(data, bytes):
        return int(google_crc32c.extend(crc, data))
    if len(data) <= _SLICE_BYTES:
        return int(google_crc32c.extend(crc, bytes(data)))
    view = memoryview(data)
    for start in range(0, len(view), _SLICE_BYTES):
        crc = google_crc32c.extend(crc, view[start : start + _SLICE_BYTES].tobytes())
    return int(crc)
