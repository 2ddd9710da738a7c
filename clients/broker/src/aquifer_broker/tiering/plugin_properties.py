"""The properties of a plugin as its `configure` takes them (SR-4, SR-5)."""

from collections.abc import Mapping
from typing import Final

__all__ = ["plugin_properties"]

# Keys under the prefixes that are the broker's own.
_OWN: Final = frozenset(
    {
        "enable",
        "system.enable",
        "manager.class.name",
        "manager.class.path",
        "manager.impl.prefix",
        "custom.metadata.max.bytes",
    }
)


def plugin_properties(configs: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Takes the prefix off, as Kafka does; values stay as given, keys without the prefix (`broker.id`) as well."""
    stripped = {key.removeprefix(prefix): value for key, value in configs.items()}
    return {key: value for key, value in stripped.items() if key not in _OWN}
