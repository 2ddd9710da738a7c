"""Page of every setting: the services' from their settings classes, the broker's from its definitions."""

import importlib
import inspect
import re
import types
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from aquifer_broker.config.broker_keys import BROKER_DEFINITIONS
from aquifer_broker.config.definitions import INT_MAX, LONG_MAX, Definition
from aquifer_broker.config.topic_config import SERVER_SYNONYMS, TOPIC_DEFINITIONS
from aquifer_rpc.environment import NESTED_DELIMITER
from aquifer_rpc.settings import ServiceSettings
from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from generators.page import MARK, table

SERVICES = ("storage", "metadata", "manager")

_INTRODUCTION = """# Configuration

Services read environment variables; an unknown variable with a service's prefix, or a refused value, stops the start with one line
that names key, value and remedy. The broker reads Kafka's `server.properties`.
"""
_BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "min_length": "length >="}
_SERVICE_HEADER = ("variable", "type", "default", "meaning")
_BROKER_HEADER = ("key", "type", "default", "dynamic", "meaning")
_TOPIC_HEADER = ("key", "type", "default", "broker's default from", "meaning")
_LARGEST = {INT_MAX: "2^31-1", LONG_MAX: "2^63-1"}


def configuration_page() -> str:
    """Every setting of the suite."""
    parts = [MARK, _INTRODUCTION]
    for name in SERVICES:
        settings_type, prefix = service_settings(name)
        parts.append(f"\n## {name.capitalize()} service\n\n")
        parts.append(table(_SERVICE_HEADER, _rows(settings_type, prefix)))
    parts.append("\n## Broker: server.properties\n\n")
    parts.append(table(_BROKER_HEADER, map(_broker_row, BROKER_DEFINITIONS)))
    parts.append("\n## Broker: topic settings\n\n")
    parts.append(table(_TOPIC_HEADER, map(_topic_row, TOPIC_DEFINITIONS.values())))
    return "".join(parts)


def service_settings(name: str) -> tuple[type[ServiceSettings], str]:
    """Settings class and variable prefix of a service, as its `settings` module has them."""
    module = importlib.import_module(f"aquifer_{name}.settings")
    [found] = [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, ServiceSettings)
        and value.__module__ == module.__name__
    ]
    [prefix] = {
        value
        for value in vars(module).values()
        if isinstance(value, str) and re.fullmatch(r"AQUIFER_[A-Z]+_", value)
    }
    return found, prefix


def variables(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo, Any]]:
    """Every variable of a model with its field and default; groups are followed, not listed."""
    yield from _walk(model, prefix, None)


def _walk(
    model: type[BaseModel], prefix: str, instance: BaseModel | None
) -> Iterator[tuple[str, FieldInfo, Any]]:
    for field_name, field in model.model_fields.items():
        default = (
            getattr(instance, field_name)
            if instance is not None
            else field.get_default(call_default_factory=True)
        )
        name = prefix + field_name.upper()
        group = _group(field.annotation)
        if group is None:
            yield name, field, default
        else:
            nested = name + NESTED_DELIMITER
            if isinstance(default, BaseModel):
                yield from _walk(group, nested, default)
            else:
                yield from _unset_group(group, nested)


def _unset_group(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo, Any]]:
    """Variables of a group that does not exist until one of them is given."""
    for name, field, default in _walk(model, prefix, None):
        yield name, field, None if default is PydanticUndefined else default


def _group(annotation: Any) -> type[BaseModel] | None:
    parts = _alternatives(annotation)
    models = [part for part in parts if inspect.isclass(part) and issubclass(part, BaseModel)]
    return models[0] if models else None


def _rows(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, ...]]:
    for name, field, default in variables(model, prefix):
        yield (f"`{name}`", _type(field), _default(default), field.description or "")


def _type(field: FieldInfo) -> str:
    marks = [*field.metadata, *_inner_marks(field.annotation)]
    bounds = [
        f"{words} {getattr(mark, bound)}"
        for mark in marks
        for bound, words in _BOUNDS.items()
        if hasattr(mark, bound)
    ]
    return ", ".join([_type_name(field.annotation), *bounds])


def _inner_marks(annotation: Any) -> list[Any]:
    """Bounds of the alternatives of a union, which are not the field's own."""
    if get_origin(annotation) in (Union, types.UnionType):
        return [mark for part in get_args(annotation) for mark in _inner_marks(part)]
    return list(getattr(annotation, "__metadata__", ()))


def _type_name(annotation: Any) -> str:
    parts = [part for part in _alternatives(annotation) if part is not type(None)]
    return " or ".join(_single_type_name(part) for part in parts)


def _single_type_name(part: Any) -> str:
    if get_origin(part) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(part))
    if get_origin(part) in (tuple, list, set, frozenset):
        inner = [each for each in get_args(part) if each is not Ellipsis]
        return "list of " + _type_name(inner[0])
    if get_origin(part) is dict:
        return "map"
    if inspect.isclass(part) and issubclass(part, Enum):
        return " or ".join(f"`{member.value}`" for member in part)
    names = {
        int: "whole number",
        float: "number",
        bool: "boolean",
        str: "text",
        Path: "path",
        SecretStr: "secret text",
        SecretBytes: "secret text",
    }
    return names.get(part, getattr(part, "__name__", str(part)))


def _alternatives(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [part for each in get_args(annotation) for part in _alternatives(each)]
    return [annotation]


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "must be given"
    return _value(value)


def _value(value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, SecretStr | SecretBytes):
        return "for local use only"
    if isinstance(value, int) and value in _LARGEST:
        return f"`{value}` ({_LARGEST[value]})"
    text = _plain(value)
    return f"`{text}`" if text else "empty"


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple | list):
        return ",".join(str(each) for each in value)
    return str(value)


def _broker_row(definition: Definition) -> tuple[str, ...]:
    also = "".join(f", also `{alias}`" for alias in definition.aliases)
    dynamic = "yes" if definition.dynamic else ""
    key, kind = f"`{definition.name}`{also}", definition.type.value.lower()
    return (key, kind, _value(definition.default), dynamic, definition.doc)


def _topic_row(definition: Definition) -> tuple[str, ...]:
    synonyms = ", ".join(f"`{key}`" for key in SERVER_SYNONYMS.get(definition.name, ()))
    kind = definition.type.value.lower()
    return (f"`{definition.name}`", kind, _value(definition.default), synonyms, definition.doc)
