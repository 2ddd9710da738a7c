"""The configuration reference, as Markdown: `python -m aquifer_broker.config.config_reference`."""

import sys
from collections.abc import Iterable

from aquifer_broker.config.broker_keys import BROKER_DEFINITIONS
from aquifer_broker.config.definitions import LONG_MAX, Definition
from aquifer_broker.config.topic_config import TOPIC_DEFINITIONS
from aquifer_broker.config.config_text import config_text

__all__ = ["render_reference"]


def render_reference() -> str:
    """Every key of `server.properties` and of topics, with type, default and meaning."""
    return "\n".join(
        [
            "# Configuration of a broker node",
            "",
            "## server.properties",
            "",
            *_table(BROKER_DEFINITIONS),
            "",
            "Other keys that start with `remote.log.storage.` or `remote.log.metadata.` go to the plugins as given.",
            "",
            "## Topics",
            "",
            *_table(TOPIC_DEFINITIONS.values()),
            "",
        ]
    )


def _table(definitions: Iterable[Definition]) -> list[str]:
    lines = ["| Name | Type | Default | Dynamic | Meaning |", "|---|---|---|---|---|"]
    for each in definitions:
        default = "the largest number" if each.default == LONG_MAX else config_text(each.default)
        aliases = f" Also `{'`, `'.join(each.aliases)}`." if each.aliases else ""
        lines.append(
            f"| `{each.name}` | {each.type} | {default or ''} | {'yes' if each.dynamic else ''} |"
            f" {each.doc}{aliases} |"
        )
    return lines


if __name__ == "__main__":
    sys.stdout.write(render_reference())
