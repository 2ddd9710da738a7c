"""Every key of `server.properties` that this broker knows."""

from typing import Final

from aquifer_broker.config.definitions import (
    INT_MAX,
    ConfigType,
    Definition,
    at_least,
    between,
    define,
    not_empty,
    one_of,
)
from aquifer_broker.config.log_keys import LOG_DEFINITIONS
from aquifer_broker.config.remote_keys import REMOTE_DEFINITIONS
from aquifer_broker.config.suite_keys import SUITE_DEFINITIONS

__all__ = ["BROKER_DEFINITIONS", "DEFINITIONS_BY_NAME"]

_B, _S, _I, _L, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.LIST,
)


_NODE: Final = (
    define(
        "node.id",
        _I,
        None,
        "Id of this broker, unique in the cluster. Mandatory.",
        aliases=("broker.id",),
        validator=at_least(0),
    ),
    define(
        "broker.rack", _S, None, "Rack of this broker, told to clients and used to spread replicas."
    ),
    define(
        "listeners",
        _LIST,
        ("PLAINTEXT://:9092",),
        "Listeners as NAME://host:port; an empty host means all interfaces, port 0 any free one.",
        validator=not_empty,
    ),
    define(
        "advertised.listeners",
        _LIST,
        (),
        "Listeners as clients reach them; unset: as `listeners`. An empty host stands for this machine's name.",
    ),
    define(
        "listener.security.protocol.map",
        _LIST,
        (),
        "NAME:PROTOCOL pairs; a listener named PLAINTEXT or SSL needs none.",
    ),
    define(
        "ssl.keystore.location",
        _S,
        None,
        "PEM file with the private key and certificate chain of SSL listeners.",
    ),
    define("ssl.key.password", _S, None, "Password of the private key.", sensitive=True),
    define(
        "ssl.truststore.location",
        _S,
        None,
        "PEM file with the certificates that client certificates are checked against.",
    ),
    define(
        "ssl.client.auth",
        _S,
        "none",
        "Whether clients must show a certificate.",
        validator=one_of("none", "requested", "required"),
    ),
    define(
        "socket.request.max.bytes",
        _I,
        104_857_600,
        "Largest request accepted; a larger one closes the connection.",
        validator=at_least(1),
    ),
    define(
        "queued.max.request.bytes",
        _L,
        268_435_456,
        "Bytes of requests in memory at once; sockets are not read beyond.",
        validator=at_least(1),
    ),
    define(
        "max.connections",
        _I,
        INT_MAX,
        "Connections accepted at once per listener.",
        validator=at_least(1),
    ),
    define(
        "connections.max.idle.ms",
        _L,
        600_000,
        "Idle connections are closed after this time.",
        validator=at_least(1),
    ),
    define(
        "fetch.max.bytes",
        _I,
        57_671_680,
        "Most bytes of records in one fetch response.",
        validator=at_least(1024),
    ),
    define(
        "request.timeout.ms",
        _I,
        30_000,
        "Deadline of calls to other parts of the cluster.",
        validator=at_least(1),
    ),
)

_TOPICS: Final = (
    define(
        "num.partitions",
        _I,
        1,
        "Partitions of a topic created without a number.",
        validator=at_least(1),
    ),
    define(
        "default.replication.factor",
        _I,
        1,
        "Replicas of a topic created without a number.",
        validator=between(1, 32_767),
    ),
    define(
        "auto.create.topics.enable",
        _B,
        True,
        "Whether asking for the metadata of an unknown topic creates it.",
    ),
    define("delete.topic.enable", _B, True, "Whether topics can be deleted."),
    define(
        "min.insync.replicas",
        _I,
        1,
        "Replicas that must have a record before a producer with acks=all is answered.",
        validator=at_least(1),
        dynamic=True,
    ),
    define(
        "compression.type",
        _S,
        "producer",
        "Codec of stored records; batches are stored as the producer made them.",
        validator=one_of("producer"),
    ),
)

_GROUPS: Final = (
    define(
        "group.min.session.timeout.ms",
        _I,
        6_000,
        "Shortest session timeout a consumer may ask for.",
        validator=at_least(0),
    ),
    define(
        "group.max.session.timeout.ms",
        _I,
        1_800_000,
        "Longest session timeout a consumer may ask for.",
        validator=at_least(0),
    ),
    define(
        "group.initial.rebalance.delay.ms",
        _I,
        3_000,
        "Time a new group waits for more members before its first generation.",
        validator=at_least(0),
    ),
    define("group.max.size", _I, INT_MAX, "Members of a group.", validator=at_least(1)),
    define(
        "offset.metadata.max.bytes",
        _I,
        4_096,
        "Longest text that may be committed with an offset.",
        validator=at_least(0),
    ),
    define(
        "offsets.retention.minutes",
        _I,
        10_080,
        "Offsets of a group are deleted when it was empty and idle for this time, as far as its coordinator has seen; a restart begins anew.",
        validator=at_least(1),
    ),
    define(
        "offsets.retention.check.interval.ms",
        _L,
        600_000,
        "Time between two looks for expired offsets.",
        validator=at_least(1),
    ),
)

BROKER_DEFINITIONS: Final[tuple[Definition, ...]] = (
    *_NODE,
    *_TOPICS,
    *LOG_DEFINITIONS,
    *_GROUPS,
    *REMOTE_DEFINITIONS,
    *SUITE_DEFINITIONS,
)
"""In the order of the generated reference."""

DEFINITIONS_BY_NAME: Final = {
    name: each for each in BROKER_DEFINITIONS for name in (each.name, *each.aliases)
}
"""By name and alias."""
