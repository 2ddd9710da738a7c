"""Listeners and endpoints: `NAME://host:port`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aquifer_broker.config.definitions import refusal

__all__ = ["Listener", "parse_host_port", "parse_listeners", "parse_protocol_map"]

_LISTENER: Final = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)://(?P<host>\[[^\]]*\]|[^:\[\]]*):(?P<port>\d+)"
)
_PROTOCOLS: Final = ("PLAINTEXT", "SSL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One address to listen on, or to be reached at; an empty host means all interfaces."""

    name: str
    host: str
    port: int


def parse_listeners(key: str, texts: Sequence[str]) -> tuple[Listener, ...]:
    """Parses listeners.

    Raises:
        InvalidConfigurationError: malformed, or two have the same name.
    """
    listeners = tuple(_parse(key, text) for text in texts)
    names = [listener.name for listener in listeners]
    if len(set(names)) != len(names):
        raise refusal(key, ",".join(texts), "give every listener another name")
    return listeners


def _parse(key: str, text: str) -> Listener:
    match = _LISTENER.fullmatch(text)
    if match is None or int(match["port"]) > 65_535:
        raise refusal(key, text, "give NAME://host:port")
    return Listener(
        name=match["name"].upper(), host=match["host"].strip("[]"), port=int(match["port"])
    )


def parse_protocol_map(
    key: str, texts: Sequence[str], listeners: Sequence[Listener]
) -> dict[str, str]:
    """Security protocol by listener name; names of a protocol mean that protocol.

    Raises:
        InvalidConfigurationError: malformed, a protocol that is not supported, or a listener without one.
    """
    protocols = {name: name for name in _PROTOCOLS}
    for text in texts:
        name, separator, protocol = text.partition(":")
        if not separator or protocol.upper() not in _PROTOCOLS:
            raise refusal(key, text, f"give NAME:PROTOCOL with one of {', '.join(_PROTOCOLS)}")
        protocols[name.upper()] = protocol.upper()
    for listener in listeners:
        if listener.name not in protocols:
            raise refusal(
                key, ",".join(texts), f"add {listener.name}:PLAINTEXT or {listener.name}:SSL"
            )
    return {listener.name: protocols[listener.name] for listener in listeners}


def parse_host_port(key: str, text: str) -> tuple[str, int]:
    """Parses `host:port`.

    Raises:
        InvalidConfigurationError: malformed.
    """
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65_535:
        raise refusal(key, text, "give host:port")
    return host.strip("[]"), int(port)
