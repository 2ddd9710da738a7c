"""The typed configuration of a broker node."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from aquifer_core.errors import InvalidConfigurationError, InvalidRequestError
from aquifer_core.ids import KafkaUuid

from aquifer_broker.config.broker_keys import BROKER_DEFINITIONS, DEFINITIONS_BY_NAME
from aquifer_broker.config.definitions import parse_all, refusal
from aquifer_broker.config.listeners import (
    Listener,
    parse_host_port,
    parse_listeners,
    parse_protocol_map,
)
from aquifer_broker.config.remote_keys import METADATA_PREFIX, STORAGE_PREFIX
from aquifer_broker.config.suite_tls import check_tls
from aquifer_broker.log.log_config import LogConfig, parse_server_defaults

__all__ = ["BrokerConfig"]

_EVERYWHERE: Final = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """What `server.properties` says, checked.

    Attributes:
        values: parsed value of every defined key, defaults included.
        properties: every property as given in the file, whatever is set dynamically over it.
        unknown_keys: given keys that nothing here knows.
        keys_without_effect: given keys that count elsewhere, with what to set there.
        lost_log_dirs: directory ids.
        log_defaults: defaults of topic configs.
        security_protocols: by listener name.
    """

    node_id: int
    values: Mapping[str, Any]
    properties: Mapping[str, str]
    unknown_keys: tuple[str, ...]
    keys_without_effect: Mapping[str, str]
    listeners: tuple[Listener, ...]
    advertised_listeners: tuple[Listener, ...]
    security_protocols: Mapping[str, str]
    log_dirs: tuple[Path, ...]
    lost_log_dirs: frozenset[KafkaUuid]
    log_defaults: LogConfig
    remote_storage_enabled: bool
    metadata_endpoints: tuple[str, ...]
    manager_endpoints: tuple[str, ...]
    num_partitions: int
    default_replication_factor: int
    auto_create_topics: bool
    delete_topics_allowed: bool
    max_request_bytes: int
    queued_request_bytes: int
    response_budget_bytes: int
    fetch_max_bytes: int
    connections_max_idle_ms: int
    max_connections: int
    request_timeout_ms: int
    remote_fetch_max_wait_ms: int
    remote_list_offsets_timeout_ms: int
    offset_metadata_max_bytes: int

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> Self:
        """Checks properties and fills in defaults.

        Raises:
            InvalidConfigurationError: the text names key, value and remedy.
        """
        values = parse_all(BROKER_DEFINITIONS, properties)
        if values["node.id"] is None:
            raise InvalidConfigurationError(
                "node.id is missing: give this broker an id that no other broker of the cluster has",
                metadata={"key": "node.id", "value": ""},
            )
        if not values["aquifer.metadata.endpoints"]:
            raise InvalidConfigurationError(
                "aquifer.metadata.endpoints is missing: give host:port of the metadata service",
                metadata={"key": "aquifer.metadata.endpoints", "value": ""},
            )
        _check_groups(values)
        _check_remote(values)
        check_tls(values)
        listeners = parse_listeners("listeners", values["listeners"])
        return cls(
            node_id=values["node.id"],
            values=values,
            properties=dict(properties),
            unknown_keys=_unknown(properties),
            keys_without_effect={
                each.name: each.counts_elsewhere
                for each in BROKER_DEFINITIONS
                if each.counts_elsewhere is not None and each.name in properties
            },
            listeners=listeners,
            advertised_listeners=_advertised(values, listeners),
            security_protocols=parse_protocol_map(
                "listener.security.protocol.map",
                values["listener.security.protocol.map"],
                listeners,
            ),
            log_dirs=tuple(Path(text) for text in values["log.dirs"]),
            lost_log_dirs=_lost_log_dirs(values),
            log_defaults=parse_server_defaults(properties),
            remote_storage_enabled=values["remote.log.storage.enable"],
            metadata_endpoints=values["aquifer.metadata.endpoints"],
            manager_endpoints=values["aquifer.manager.endpoints"],
            num_partitions=values["num.partitions"],
            default_replication_factor=values["default.replication.factor"],
            auto_create_topics=values["auto.create.topics.enable"],
            delete_topics_allowed=values["delete.topic.enable"],
            max_request_bytes=values["socket.request.max.bytes"],
            queued_request_bytes=values["queued.max.request.bytes"],
            response_budget_bytes=values["aquifer.response.max.bytes"],
            fetch_max_bytes=values["fetch.max.bytes"],
            connections_max_idle_ms=values["connections.max.idle.ms"],
            max_connections=values["max.connections"],
            request_timeout_ms=values["request.timeout.ms"],
            remote_fetch_max_wait_ms=values["remote.fetch.max.wait.ms"],
            remote_list_offsets_timeout_ms=values["remote.list.offsets.request.timeout.ms"],
            offset_metadata_max_bytes=values["offset.metadata.max.bytes"],
        )

    def with_dynamic(self, dynamic: Mapping[str, str]) -> Self:
        """The configuration with dynamic settings over those of the file.

        Raises:
            InvalidConfigurationError: one of them is refused, alone or with the others.
        """
        return replace(self.parse({**self.properties, **dynamic}), properties=self.properties)

    def storage_manager_configs(self, cluster_id: str) -> dict[str, str]:
        """What the RemoteStorageManager's `configure` gets (SR-4)."""
        return self._plugin_configs(STORAGE_PREFIX, cluster_id)

    def metadata_manager_configs(self, cluster_id: str) -> dict[str, str]:
        """What the RemoteLogMetadataManager's `configure` gets (SR-5)."""
        return self._plugin_configs(METADATA_PREFIX, cluster_id)

    def _plugin_configs(self, prefix: str, cluster_id: str) -> dict[str, str]:
        given = {key: value for key, value in self.properties.items() if key.startswith(prefix)}
        return {
            "broker.id": str(self.node_id),
            "cluster.id": cluster_id,
            "log.dir": str(self.log_dirs[0]),
            **given,
        }


def _unknown(properties: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        key
        for key in properties
        if key not in DEFINITIONS_BY_NAME and not key.startswith((STORAGE_PREFIX, METADATA_PREFIX))
    )


def _advertised(values: Mapping[str, Any], listeners: tuple[Listener, ...]) -> tuple[Listener, ...]:
    """Advertised listeners; one that is not given is advertised as it listens."""
    key = "advertised.listeners"
    advertised = {each.name: each for each in parse_listeners(key, values[key])}
    unknown = advertised.keys() - {listener.name for listener in listeners}
    if unknown:
        raise refusal(
            key,
            ",".join(values[key]),
            f"{sorted(unknown)[0]} is not among the listeners; add it there",
        )
    told = tuple(advertised.get(listener.name, listener) for listener in listeners)
    for listener in told:
        if listener.host in _EVERYWHERE:
            raise refusal(
                key,
                f"{listener.name}://{listener.host}:{listener.port}",
                "clients cannot connect to that address; give the one at which they reach this broker",
            )
    return told


def _lost_log_dirs(values: Mapping[str, Any]) -> frozenset[KafkaUuid]:
    key = "aquifer.lost.log.dirs"
    try:
        return frozenset(map(KafkaUuid.parse, values[key]))
    except InvalidRequestError as error:
        raise refusal(key, ",".join(values[key]), f"{error}; give directory ids") from error


def _check_groups(values: Mapping[str, Any]) -> None:
    low, high = values["group.min.session.timeout.ms"], values["group.max.session.timeout.ms"]
    if low > high:
        raise refusal(
            "group.min.session.timeout.ms",
            str(low),
            f"it must not exceed group.max.session.timeout.ms ({high})",
        )


def _check_remote(values: Mapping[str, Any]) -> None:
    if not values["remote.log.storage.enable"]:
        return
    key, advertised = "aquifer.broker.log.service.listener", "aquifer.broker.log.service.advertised"
    host, _ = parse_host_port(key, values[key])
    if host in ("", *_EVERYWHERE) and not values[advertised]:
        raise refusal(
            key,
            values[key],
            f"the manager cannot connect to that address; give {advertised} as well, at which it reaches this broker",
        )
    if not values["aquifer.manager.endpoints"]:
        raise InvalidConfigurationError(
            "aquifer.manager.endpoints is missing: with remote.log.storage.enable=true give host:port"
            " of the manager",
            metadata={"key": "aquifer.manager.endpoints", "value": ""},
        )
