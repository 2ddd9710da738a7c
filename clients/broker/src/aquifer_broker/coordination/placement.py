"""Which broker coordinates a group: rendezvous hashing over the live brokers."""

import hashlib
from collections.abc import Iterable

__all__ = ["coordinator_of"]


def coordinator_of(key: str, broker_ids: Iterable[int]) -> int | None:
    """The broker for a group; when one broker goes, only its groups move. None: there is no broker."""
    return max(broker_ids, key=lambda broker_id: _weight(key, broker_id), default=None)


def _weight(key: str, broker_id: int) -> bytes:
    return hashlib.blake2b(f"{broker_id}/{key}".encode(), digest_size=8).digest()
