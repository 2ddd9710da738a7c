"""The leader epoch checkpoint, which is also the remote LEADER_EPOCH index (K-6.4)."""

from collections.abc import Iterable

from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats.checkpoint import (
    format_checkpoint,
    parse_checkpoint,
    parse_int32,
    parse_int64,
)
from aquifer_core.formats.checksum import Buffer
from aquifer_core.leader_epoch import LeaderEpochEntry

__all__ = ["format_leader_epochs", "parse_leader_epochs"]

_NAME = "leader epoch checkpoint"


def parse_leader_epochs(data: Buffer) -> tuple[LeaderEpochEntry, ...]:
    """Parse the text of a checkpoint; entries come in file order.

    Raises:
        CorruptIndexError: The text is malformed; the message tells the line.
    """
    entries = []
    for where, (epoch_text, offset_text) in parse_checkpoint(data, _NAME, 2):
        epoch = parse_int32(epoch_text, where)
        start_offset = parse_int64(offset_text, where)
        if epoch < 0 or start_offset < 0:
            raise CorruptIndexError(f"{where}: negative number")
        entries.append(LeaderEpochEntry(epoch, start_offset))
    return tuple(entries)


def format_leader_epochs(entries: Iterable[LeaderEpochEntry]) -> bytes:
    """Encode entries as the text of a checkpoint."""
    return format_checkpoint(f"{entry.epoch} {entry.start_offset}" for entry in entries)
