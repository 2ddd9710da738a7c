"""The addresses that a channel may call, and in which order."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import grpc.aio


@dataclass(slots=True, kw_only=True)
class Endpoint:
    """One address; `down_until_s` is in the past while it answers."""

    target: str
    channel: grpc.aio.Channel = field(repr=False)
    down_until_s: float = 0.0


class Endpoints:
    """Chooses among endpoints: those that answer come first.

    Calls with an affinity key see the endpoints in the order of a rendezvous hash, so that one key goes to one endpoint, and only
    the keys of an endpoint that is gone move. Calls without one go round robin.
    """

    def __init__(self, endpoints: Sequence[Endpoint], *, down_s: float) -> None:
        self._endpoints = tuple(endpoints)
        self._down_s = down_s
        self._next = 0

    def __len__(self) -> int:
        return len(self._endpoints)

    def order(self, affinity: bytes | None = None) -> list[Endpoint]:
        """Every endpoint once, in the order to try."""
        if len(self._endpoints) == 1:
            return [self._endpoints[0]]
        if affinity is None:
            self._next = (self._next + 1) % len(self._endpoints)
            ordered = [*self._endpoints[self._next :], *self._endpoints[: self._next]]
        else:
            key = affinity
            ordered = sorted(self._endpoints, key=lambda each: _weight(each.target, key))
        now_s = time.monotonic()
        return sorted(ordered, key=lambda each: each.down_until_s > now_s)

    def mark_down(self, endpoint: Endpoint) -> None:
        """Notes that an endpoint did not answer; it is asked last for a while."""
        endpoint.down_until_s = time.monotonic() + self._down_s

    def mark_up(self, endpoint: Endpoint) -> None:
        """Notes that an endpoint answered."""
        endpoint.down_until_s = 0.0


def _weight(target: str, key: bytes) -> bytes:
    return hashlib.blake2b(target.encode() + b"\0" + key, digest_size=8).digest()
