"""How a configuration key is defined: type, default, range and documentation in one place."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from aquifer_core.errors import InvalidConfigurationError

__all__ = [
    "INT_MAX",
    "LONG_MAX",
    "ConfigType",
    "Definition",
    "at_least",
    "between",
    "define",
    "not_empty",
    "one_of",
    "parse_all",
    "refusal",
]

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

Validator = Callable[[Any], str | None]
"""None: fine. Otherwise what to give instead."""


class ConfigType(StrEnum):
    """Kafka's `ConfigDef.Type`."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One key.

    Attributes:
        default: parsed default; None: not set.
        aliases: other accepted names; two names with different values are refused.
        dynamic: may be changed with IncrementalAlterConfigs.
        counts_elsewhere: what has to be set instead, because nothing here depends on the key; it is known so that Kafka's files are taken.
        doc: a sentence or two, for the generated reference.
    """

    name: str
    type: ConfigType
    default: Any = None
    validator: Validator | None = None
    aliases: tuple[str, ...] = ()
    dynamic: bool = False
    sensitive: bool = False
    counts_elsewhere: str | None = None
    doc: str = ""

    def parse(self, text: str, name: str | None = None) -> Any:
        """Value of a text.

        Raises:
            InvalidConfigurationError: names key, value and remedy.
        """
        name = name or self.name
        try:
            value = _PARSERS[self.type](text.strip())
        except ValueError:
            raise refusal(name, text, f"give a value of type {_REMEDIES[self.type]}") from None
        remedy = self.validator(value) if self.validator is not None else None
        if remedy is not None:
            raise refusal(name, text, remedy)
        return value


def define(
    name: str,
    kind: ConfigType,
    default: object,
    doc: str,
    *,
    validator: Validator | None = None,
    aliases: tuple[str, ...] = (),
    dynamic: bool = False,
    sensitive: bool = False,
    counts_elsewhere: str | None = None,
) -> Definition:
    """A definition in the short form that tables use."""
    return Definition(
        name=name,
        type=kind,
        default=default,
        doc=f"{doc} No effect here: set {counts_elsewhere}." if counts_elsewhere else doc,
        validator=validator,
        aliases=aliases,
        dynamic=dynamic,
        sensitive=sensitive,
        counts_elsewhere=counts_elsewhere,
    )


def refusal(key: str, value: str, remedy: str) -> InvalidConfigurationError:
    """The one form in which a value is refused."""
    return InvalidConfigurationError(
        f"{key}={value!r} is not valid: {remedy}", metadata={"key": key, "value": value}
    )


def at_least(low: int) -> Validator:
    """A number not below `low`."""
    return lambda value: None if value >= low else f"give a number of at least {low}"


def between(low: float, high: float) -> Validator:
    """A number in an inclusive range."""
    return lambda value: None if low <= value <= high else f"give a number from {low} to {high}"


def one_of(*allowed: str) -> Validator:
    """One of a few words."""
    return lambda value: None if value in allowed else f"give one of {', '.join(allowed)}"


def not_empty(value: Any) -> str | None:
    """Something other than nothing."""
    return None if value else "give a value that is not empty, or leave the key out"


def parse_all(definitions: Iterable[Definition], properties: Mapping[str, str]) -> dict[str, Any]:
    """Parsed value of every defined key, defaults included.

    Raises:
        InvalidConfigurationError: a value is refused, or a key and its alias contradict each other.
    """
    return {each.name: _value(each, properties) for each in definitions}


def _value(definition: Definition, properties: Mapping[str, str]) -> Any:
    given = [name for name in (definition.name, *definition.aliases) if name in properties]
    if not given:
        return definition.default
    values = [definition.parse(properties[name], name) for name in given]
    for name, value in zip(given[1:], values[1:], strict=True):
        if value != values[0]:
            raise InvalidConfigurationError(
                f"{given[0]}={properties[given[0]]!r} and {name}={properties[name]!r} contradict each"
                f" other: they mean the same setting; keep one of them",
                metadata={"key": given[0], "value": properties[given[0]]},
            )
    return values[0]


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(text)
    return lowered == "true"


def _bounded(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text)
        if not low <= number <= high:
            raise ValueError(text)
        return number

    return parse


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


_PARSERS: Final[Mapping[ConfigType, Callable[[str], Any]]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: str,
    ConfigType.CLASS: str,
    ConfigType.INT: _bounded(-INT_MAX - 1, INT_MAX),
    ConfigType.LONG: _bounded(-LONG_MAX - 1, LONG_MAX),
    ConfigType.DOUBLE: float,
    ConfigType.LIST: _list,
}
_REMEDIES: Final[Mapping[ConfigType, str]] = {
    ConfigType.BOOLEAN: "boolean: true or false",
    ConfigType.STRING: "text",
    ConfigType.CLASS: "dotted Python path",
    ConfigType.INT: "32-bit whole number",
    ConfigType.LONG: "64-bit whole number",
    ConfigType.DOUBLE: "number",
    ConfigType.LIST: "list separated by commas",
}
