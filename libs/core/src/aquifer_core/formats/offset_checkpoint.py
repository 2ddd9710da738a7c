"""Offset checkpoints of a log directory: log start, recovery point, high watermark (K-6.1)."""

from collections.abc import Mapping

from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats.checkpoint import (
    format_checkpoint,
    parse_checkpoint,
    parse_int32,
    parse_int64,
)
from aquifer_core.formats.checksum import Buffer

__all__ = ["format_offsets", "parse_offsets"]

_NAME = "offset checkpoint"


def parse_offsets(data: Buffer) -> dict[tuple[str, int], int]:
    """Parse the text of a checkpoint into (topic, partition) -> offset.

    Raises:
        CorruptIndexError: The text is malformed or names a partition twice; the message tells
            the line.
    """
    offsets: dict[tuple[str, int], int] = {}
    for where, (topic, partition_text, offset_text) in parse_checkpoint(data, _NAME, 3):
        key = (topic, parse_int32(partition_text, where))
        if key in offsets:
            raise CorruptIndexError(f"{where}: {topic}-{key[1]} appears twice")
        offsets[key] = parse_int64(offset_text, where)
    return offsets


def format_offsets(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """Encode (topic, partition) -> offset as the text of a checkpoint, in the mapping's order."""
    return format_checkpoint(
        f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()
    )
