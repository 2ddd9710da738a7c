"""Free loopback ports, held until the process that asked for them is started."""

import random
import socket
from collections.abc import Iterable

from aquifer_core.errors import InvalidConfigurationError

LOOPBACK = "127.0.0.1"

# Below the range from which kernels draw the source ports of outgoing connections (32768 and up on Linux), so that a
# connection made while a process restarts cannot take its port.
_FIRST_PORT = 20_000
_LAST_PORT = 32_000
_ATTEMPTS = 200


class LoopbackPort:
    """A free TCP port on 127.0.0.1, kept bound so that nobody else is given it before `release`."""

    def __init__(self, holder: socket.socket) -> None:
        self._holder: socket.socket | None = holder
        self.number: int = holder.getsockname()[1]

    def release(self) -> None:
        """Let go of the port so that its process can bind it; idempotent."""
        if self._holder is not None:
            self._holder.close()
            self._holder = None

    def __enter__(self) -> "LoopbackPort":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"LoopbackPort({self.number}, held={self._holder is not None})"


def _bind(port: int) -> socket.socket | None:
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        holder.bind((LOOPBACK, port))
    except OSError:
        holder.close()
        return None
    return holder


def hold_port() -> LoopbackPort:
    """Hold one free port outside the ephemeral range, or an ephemeral one when that range is crowded.

    Raises:
        OSError: no port can be bound at all.
    """
    for _ in range(_ATTEMPTS):
        holder = _bind(random.randint(_FIRST_PORT, _LAST_PORT))
        if holder is not None:
            return LoopbackPort(holder)
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        holder.bind((LOOPBACK, 0))
    except OSError:
        holder.close()
        raise
    return LoopbackPort(holder)


def hold_ports(count: int) -> list[LoopbackPort]:
    """Hold `count` distinct free ports."""
    ports: list[LoopbackPort] = []
    try:
        ports.extend(hold_port() for _ in range(count))
    except OSError:
        release_all(ports)
        raise
    return ports


def fixed_ports(first: int, count: int) -> list[LoopbackPort]:
    """Hold `count` ports from `first` upwards.

    Raises:
        InvalidConfigurationError: one of them is in use.
    """
    ports: list[LoopbackPort] = []
    for number in range(first, first + count):
        holder = _bind(number)
        if holder is None:
            release_all(ports)
            raise InvalidConfigurationError(
                f"port {number} on {LOOPBACK} is in use; end what listens there"
            )
        ports.append(LoopbackPort(holder))
    return ports


def release_all(ports: Iterable[LoopbackPort]) -> None:
    """Release every port; idempotent."""
    for port in ports:
        port.release()
