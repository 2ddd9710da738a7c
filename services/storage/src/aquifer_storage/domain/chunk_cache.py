"""Chunks in memory, within one budget of bytes."""

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import NamedTuple

from aquifer_core.ids import KafkaUuid

from aquifer_storage.domain.batch_range import ChunkBatches


class ChunkKey(NamedTuple):
    """Names a chunk."""

    segment_id: KafkaUuid
    number: int


class LoadedChunk(NamedTuple):
    """The original bytes of a chunk, and where its batches lie."""

    data: bytes
    batches: ChunkBatches


@dataclass(slots=True, eq=False)
class ChunkEntry:
    """A chunk that is there or on its way.

    Attributes:
        loaded: the chunk, or the error of its load.
        pins: readers that use it or wait for it; a pinned chunk stays.
        has_room: whether its bytes are counted.
        is_unread: it was read ahead and nobody has used it yet.
    """

    key: ChunkKey
    size_bytes: int
    loaded: asyncio.Future[LoadedChunk]
    pins: int = 0
    has_room: bool = False
    is_unread: bool = False


class ChunkCache:
    """Holds chunks by key and never more bytes than its capacity, those on their way included.

    Chunks that nobody uses leave in the order of their last use. A chunk that somebody waits for is given room in its turn; a
    chunk read ahead gets room at once or not at all, and those that nobody has used yet fill at most half of the capacity. A
    chunk larger than the capacity is let in alone. Failed loads are not kept.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self.unread_bytes = 0
        self._entries: OrderedDict[ChunkKey, ChunkEntry] = OrderedDict()
        self._waiting: deque[tuple[ChunkEntry, asyncio.Future[None]]] = deque()

    def find(self, key: ChunkKey) -> ChunkEntry | None:
        """Return a chunk that is there or on its way."""
        return self._entries.get(key)

    def add(self, key: ChunkKey, size_bytes: int) -> ChunkEntry:
        """Announce a chunk that is to be loaded; `give_room` must come before its bytes do."""
        loaded: asyncio.Future[LoadedChunk] = asyncio.get_running_loop().create_future()
        entry = ChunkEntry(key=key, size_bytes=size_bytes, loaded=loaded)
        self._entries[key] = entry
        return entry

    def add_ahead(self, key: ChunkKey, size_bytes: int) -> ChunkEntry | None:
        """Announce a chunk that nobody has asked for yet; none when there is no room for such."""
        if self._waiting or self.unread_bytes + size_bytes > self.capacity_bytes // 2:
            return None
        if not self._make_room(size_bytes):
            return None
        entry = self.add(key, size_bytes)
        self._occupy(entry)
        entry.is_unread = True
        self.unread_bytes += size_bytes
        return entry

    async def give_room(self, entry: ChunkEntry) -> None:
        """Count an announced chunk's bytes, as soon as there is room and its turn has come."""
        if not self._waiting and self._make_room(entry.size_bytes):
            self._occupy(entry)
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((entry, turn))
        try:
            await turn
        finally:
            if not entry.has_room:
                self._waiting.remove((entry, turn))

    def complete(self, entry: ChunkEntry, data: bytes) -> None:
        """Give a chunk its bytes."""
        entry.loaded.set_result(LoadedChunk(data, ChunkBatches(data)))
        self._release_if_done(entry)
        self._serve()

    def fail(self, entry: ChunkEntry, error: Exception) -> None:
        """Tell all who wait for a chunk why it does not come, and forget it."""
        self._drop(entry)
        entry.loaded.set_exception(error)
        entry.loaded.exception()  # retrieved, also when everybody has left
        self._release_if_done(entry)
        self._serve()

    def pin(self, entry: ChunkEntry) -> None:
        """Keep a chunk until `unpin`, and count it as used."""
        entry.pins += 1
        if entry.is_unread:
            entry.is_unread = False
            self.unread_bytes -= entry.size_bytes
        if self._entries.get(entry.key) is entry:
            self._entries.move_to_end(entry.key)

    def unpin(self, entry: ChunkEntry) -> None:
        """End a `pin`."""
        entry.pins -= 1
        self._release_if_done(entry)
        self._serve()

    def forget(self, segment_id: KafkaUuid) -> None:
        """Drop the chunks of a segment; those in use go when their use ends."""
        for entry in [e for e in self._entries.values() if e.key.segment_id == segment_id]:
            self._drop(entry)
            self._release_if_done(entry)
        self._serve()

    def _make_room(self, size_bytes: int) -> bool:
        """Evict what is not in use, if that makes enough room."""
        lacking = self.used_bytes + size_bytes - self.capacity_bytes
        if lacking <= 0:
            return True
        victims = []
        for entry in self._entries.values():
            if lacking <= 0:
                break
            if entry.has_room and entry.loaded.done() and not entry.pins:
                victims.append(entry)
                lacking -= entry.size_bytes
        left_bytes = self.used_bytes - sum(victim.size_bytes for victim in victims)
        if lacking > 0 and left_bytes:
            return False
        for victim in victims:
            self._drop(victim)
            self._release_if_done(victim)
        return True

    def _occupy(self, entry: ChunkEntry) -> None:
        entry.has_room = True
        self.used_bytes += entry.size_bytes

    def _drop(self, entry: ChunkEntry) -> None:
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]

    def _release_if_done(self, entry: ChunkEntry) -> None:
        """Stop counting a chunk that is not in the cache, not on its way and not in use."""
        is_kept = self._entries.get(entry.key) is entry
        if is_kept or entry.pins or not entry.loaded.done() or not entry.has_room:
            return
        entry.has_room = False
        self.used_bytes -= entry.size_bytes
        if entry.is_unread:
            entry.is_unread = False
            self.unread_bytes -= entry.size_bytes

    def _serve(self) -> None:
        while self._waiting and self._make_room(self._waiting[0][0].size_bytes):
            entry, turn = self._waiting.popleft()
            self._occupy(entry)
            if not turn.done():
                turn.set_result(None)
