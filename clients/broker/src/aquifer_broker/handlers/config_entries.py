"""Settings as CreateTopics and DescribeConfigs show them: value, source, synonyms."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from aquifer_broker.config.broker_config import BrokerConfig
from aquifer_broker.config.broker_keys import BROKER_DEFINITIONS
from aquifer_broker.config.config_text import config_text
from aquifer_broker.config.definitions import ConfigType, Definition
from aquifer_broker.config.topic_config import SERVER_SYNONYMS, TOPIC_DEFINITIONS
from aquifer_broker.log.log_config import parse_server_defaults

__all__ = ["Dynamic", "broker_entries", "topic_entries"]


class _Source(IntEnum):
    """Kafka's `DescribeConfigsResponse.ConfigSource`."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


_TYPE_NUMBERS: Final[Mapping[ConfigType, int]] = {
    ConfigType.BOOLEAN: 1,
    ConfigType.STRING: 2,
    ConfigType.INT: 3,
    ConfigType.LONG: 5,
    ConfigType.DOUBLE: 6,
    ConfigType.LIST: 7,
    ConfigType.CLASS: 8,
}
_Layer = tuple[_Source, str, str | None]
"""Source, name there, value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dynamic:
    """Settings of a broker that were altered while it ran: its own, and those of all brokers."""

    own: Mapping[str, str]
    cluster_wide: Mapping[str, str]

    def layers(self, names: Sequence[str]) -> Iterator[_Layer]:
        """Those of some names, the strongest first."""
        for source, values in (
            (_Source.DYNAMIC_BROKER, self.own),
            (_Source.DYNAMIC_DEFAULT_BROKER, self.cluster_wide),
        ):
            yield from ((source, name, values[name]) for name in names if name in values)


def topic_entries(
    config: BrokerConfig,
    dynamic: Dynamic,
    configs: Mapping[str, str],
    wanted: Iterable[str] | None = None,
) -> list[dict[str, Any]]:
    """Settings of a topic; `wanted` None: all."""
    names = set(wanted) if wanted is not None else None
    return [
        _entry(definition, _topic_layers(config, dynamic, configs, definition), read_only=False)
        for definition in TOPIC_DEFINITIONS.values()
        if names is None or definition.name in names
    ]


def broker_entries(
    config: BrokerConfig, dynamic: Dynamic, wanted: Iterable[str] | None = None
) -> list[dict[str, Any]]:
    """Settings of this broker: its dynamic ones, those of all brokers, its properties, defaults."""
    names = set(wanted) if wanted is not None else None
    entries = []
    for definition in BROKER_DEFINITIONS:
        name = definition.name
        if names is not None and name not in names:
            continue
        layers = list(dynamic.layers((name,)))
        layers.extend(
            (_Source.STATIC_BROKER, given, config.properties[given])
            for given in (name, *definition.aliases)
            if given in config.properties
        )
        layers.append((_Source.DEFAULT, name, config_text(definition.default)))
        entries.append(_entry(definition, layers, read_only=not definition.dynamic))
    return entries


def _topic_layers(
    config: BrokerConfig, dynamic: Dynamic, configs: Mapping[str, str], definition: Definition
) -> list[_Layer]:
    name = definition.name
    synonyms = SERVER_SYNONYMS.get(name, ())
    layers: list[_Layer] = [(_Source.TOPIC, name, configs[name])] if name in configs else []
    layers.extend(dynamic.layers(synonyms))
    for synonym in synonyms:
        if synonym in config.properties:
            text = config.properties[synonym]
            # Hours and minutes of a synonym are told in the topic config's own unit.
            value = getattr(parse_server_defaults({synonym: text}), name.replace(".", "_"), text)
            layers.append((_Source.STATIC_BROKER, synonym, config_text(value)))
            break
    layers.append((_Source.DEFAULT, name, config_text(definition.default)))
    return layers


def _entry(definition: Definition, layers: list[_Layer], *, read_only: bool) -> dict[str, Any]:
    source, _, value = layers[0]
    return {
        "name": definition.name,
        "value": None if definition.sensitive else value,
        "read_only": read_only,
        "config_source": source,
        "is_sensitive": definition.sensitive,
        "synonyms": [
            {"name": name, "value": None if definition.sensitive else text, "source": layer}
            for layer, name, text in layers
        ],
        "config_type": _TYPE_NUMBERS[definition.type],
        "documentation": definition.doc,
    }
