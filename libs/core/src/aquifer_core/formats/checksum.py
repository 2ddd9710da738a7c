"""CRC-32C over any buffer."""

from typing import TypeAlias

from awscrt.checksums import crc32c as _extended  # type: ignore[import-untyped]

__all__ = ["Buffer", "crc32c"]

Buffer: TypeAlias = bytes | bytearray | memoryview
"""What parsers of this package accept; a memoryview must be contiguous bytes."""


def crc32c(data: Buffer, crc: int = 0) -> int:
    """Return the CRC-32C of the data as an unsigned 32-bit number.

    Args:
        data: The bytes to check, which are not copied.
        crc: The checksum of what came before, to continue it.
    """
    return int(_extended(data, crc))
