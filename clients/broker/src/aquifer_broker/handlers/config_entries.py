"""Settings as CreateTopics and DescribeConfigs show them: value, source, synonyms."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final

from aquifer_broker.config.broker_config import BrokerConfig
from aquifer_broker.config.broker_keys import BROKER_DEFINITIONS
from aquifer_broker.config.config_text import config_text
from aquifer_broker.config.definitions import ConfigType, Definition
from aquifer_broker.config.topic_config import SERVER_SYNONYMS, TOPIC_DEFINITIONS

__all__ = ["broker_entries", "topic_entries"]


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


def topic_entries(
    config: BrokerConfig, configs: Mapping[str, str], wanted: Iterable[str] | None = None
) -> list[dict[str, Any]]:
    """Settings of a topic; `wanted` None: all."""
    names = set(wanted) if wanted is not None else None
    return [
        _entry(definition, _topic_layers(config, configs, definition), read_only=False)
        for definition in TOPIC_DEFINITIONS.values()
        if names is None or definition.name in names
    ]


def broker_entries(
    config: BrokerConfig,
    own: Mapping[str, str],
    cluster_wide: Mapping[str, str],
    wanted: Iterable[str] | None = None,
) -> list[dict[str, Any]]:
    """Settings of this broker: its dynamic ones, those of all brokers, its properties, defaults."""
    names = set(wanted) if wanted is not None else None
    entries = []
    for definition in BROKER_DEFINITIONS:
        name = definition.name
        if names is not None and name not in names:
            continue
        layers: list[_Layer] = []
        if name in own:
            layers.append((_Source.DYNAMIC_BROKER, name, own[name]))
        if name in cluster_wide:
            layers.append((_Source.DYNAMIC_DEFAULT_BROKER, name, cluster_wide[name]))
        layers.extend(
            (_Source.STATIC_BROKER, given, config.properties[given])
            for given in (name, *definition.aliases)
            if given in config.properties
        )
        layers.append((_Source.DEFAULT, name, config_text(definition.default)))
        entries.append(_entry(definition, layers, read_only=not definition.dynamic))
    return entries


def _topic_layers(
    config: BrokerConfig, configs: Mapping[str, str], definition: Definition
) -> list[_Layer]:
    layers: list[_Layer] = []
    name = definition.name
    if name in configs:
        layers.append((_Source.TOPIC, name, configs[name]))
    for synonym in SERVER_SYNONYMS.get(name, ()):
        if synonym in config.properties:
            # Hours and minutes of a synonym are told in the topic config's own unit.
            value = getattr(config.log_defaults, name.replace(".", "_"), config.properties[synonym])
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
