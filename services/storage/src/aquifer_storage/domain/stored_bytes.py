"""Compares what the store has with what is at hand."""

from contextlib import aclosing
from typing import Final

from aquifer_core.errors import RemoteResourceNotFoundError
from aquifer_core.formats.checksum import Buffer

from aquifer_storage.domain.ports import ObjectStore

_COMPARED_BYTES: Final = 1 << 20


async def is_stored(objects: ObjectStore, key: str, data: Buffer) -> bool:
    """Whether an object begins with some bytes, read piece by piece; false also when it is not there."""
    view = memoryview(data)
    pieces = [view[at : at + _COMPARED_BYTES] for at in range(0, len(view), _COMPARED_BYTES)]
    stored = objects.read(key, 0, [len(piece) for piece in pieces])
    try:
        async with aclosing(stored) as found:
            waiting = iter(pieces)
            return all([piece == next(waiting) async for piece in found])
    except RemoteResourceNotFoundError:
        return False
