"""Entries of remote log indexes: which are sound, and where they overlap."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats.remote_log_index import (
    REMOTE_LOG_INDEX_ENTRY_BYTES,
    RemoteLogIndexEntry,
    decode_entries,
)

from aquifer_manager.adapters.remote_index.segment_records import (
    RecordHead,
    decode_record,
    record_heads,
)

__all__ = ["clipped", "first_reaching", "sound_entries", "sound_records"]


def sound_entries(log: bytes) -> tuple[list[tuple[int, RemoteLogIndexEntry]], int]:
    """Entries before the first one that is damaged or cut short, and where they end."""
    found: list[tuple[int, RemoteLogIndexEntry]] = []
    with suppress(CorruptIndexError):
        for each in decode_entries(log):
            found.append(each)  # noqa: PERF402  what came before the damaged one stays
    return found, len(found) * REMOTE_LOG_INDEX_ENTRY_BYTES


def sound_records(data: bytes) -> Iterator[RecordHead]:
    """Records before the first one that is damaged or cut short."""
    with suppress(CorruptIndexError):
        for head in record_heads(data):
            decode_record(data, head)
            yield head


def clipped(entries: Sequence[RemoteLogIndexEntry], last_offset: int) -> list[RemoteLogIndexEntry]:
    """Chunks that end where another segment takes over: the offsets of a time index never decrease."""
    return [
        entry if entry.last_offset <= last_offset else replace(entry, last_offset=last_offset)
        for entry in entries
    ]


def first_reaching(log: bytes, position: int, offset: int) -> int:
    """The first of the entries just before a position that reach an offset: chunks of two segments may overlap."""
    while position > 0:
        before = position - REMOTE_LOG_INDEX_ENTRY_BYTES
        _, entry = next(decode_entries(log, before))
        if entry.last_offset < offset:
            break
        position = before
    return position
