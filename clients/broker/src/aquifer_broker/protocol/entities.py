"""Builds kio response entities of any version from one description of the answer.

kio has one set of dataclasses per version of an API. A handler describes its answer once, as nested mappings in
the newest version's field names; `build` makes the entity of the version asked for, leaves out what
that version does not have and converts milliseconds, uuids and datetimes to what kio wants.
"""

import dataclasses
import datetime
import types
import typing
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from aquifer_core.ids import KafkaUuid
from kio.index import load_response_schema
from kio.schema.index import api_key_map, schema_name_map

__all__ = ["build", "millis", "to_uuid"]

Entity = TypeVar("Entity")
_Convert = Callable[[Any], Any]

_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_NO_TIME: Final = datetime.timedelta(0)
_LAST_MS: Final = 253_402_300_799_999

_CONVERTERS: Final[dict[type[Any], dict[str, _Convert | None]]] = {}
_KNOWN_ELSEWHERE: Final[set[tuple[type[Any], str]]] = set()


def millis(duration: datetime.timedelta) -> int:
    """A duration of a request, in whole milliseconds."""
    return duration // _MILLISECOND


def to_uuid(topic_id: KafkaUuid | uuid.UUID | None) -> uuid.UUID | None:
    """The id as kio wants it; None stands for the zero uuid."""
    if not isinstance(topic_id, KafkaUuid):
        return topic_id
    return None if topic_id == KafkaUuid.ZERO else uuid.UUID(bytes=topic_id.raw)


def build(entity_type: type[Entity], values: Mapping[str, Any]) -> Entity:
    """Makes an entity; nested entities are mappings, times integers of milliseconds, ids `KafkaUuid`.

    Raises:
        KeyError: a name that no version of this entity has.
    """
    schema: type[Any] = entity_type
    converters = _converters(schema)
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        try:
            convert = converters[name]
        except KeyError:
            _check_known(schema, name)
            continue
        arguments[name] = value if convert is None else convert(value)
    if "throttle_time" in converters and "throttle_time" not in arguments:
        arguments["throttle_time"] = _NO_TIME
    return entity_type(**arguments)


def _converters(entity_type: type[Any]) -> dict[str, _Convert | None]:
    known = _CONVERTERS.get(entity_type)
    if known is None:
        hints = typing.get_type_hints(entity_type)
        known = {
            field.name: _converter(field.metadata.get("kafka_type"), hints[field.name])
            for field in dataclasses.fields(entity_type)
        }
        _CONVERTERS[entity_type] = known
    return known


def _converter(kafka_type: str | None, hint: Any) -> _Convert | None:
    if kafka_type is None:
        return _entity_converter(hint)
    if typing.get_origin(_without_none(hint)) is tuple:
        return _tuple_of_scalars(_SCALARS.get(kafka_type))
    return _SCALARS.get(kafka_type)


def _entity_converter(hint: Any) -> _Convert:
    inner = _without_none(hint)
    if typing.get_origin(inner) is tuple:
        (item_type, _) = typing.get_args(inner)

        def build_all(items: Any) -> Any:
            return None if items is None else tuple([build(item_type, item) for item in items])

        return build_all
    return lambda value: None if value is None else build(inner, value)


def _tuple_of_scalars(convert: _Convert | None) -> _Convert:
    if convert is None:
        return lambda items: None if items is None else tuple(items)
    return lambda items: None if items is None else tuple([convert(item) for item in items])


def _without_none(hint: Any) -> Any:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        (inner,) = (part for part in typing.get_args(hint) if part is not type(None))
        return inner
    return hint


def _from_ms(value: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=value)


def _timestamp(value: int) -> datetime.datetime | None:
    """None, which is written as -1, also for what a producer wrote that lies behind the last day of the calendar."""
    if not 0 <= value <= _LAST_MS:
        return None
    return datetime.datetime.fromtimestamp(value / 1000, tz=datetime.UTC)


_SCALARS: Final[dict[str, _Convert]] = {
    "timedelta_i32": _from_ms,
    "timedelta_i64": _from_ms,
    "datetime_i64": _timestamp,
    "uuid": to_uuid,
}


def _check_known(entity_type: type[Any], name: str) -> None:
    """Lets a name pass that another version of the entity has."""
    if (entity_type, name) in _KNOWN_ELSEWHERE:
        return
    api_key: int = entity_type.__api_key__
    for version in schema_name_map[api_key_map[api_key]]:
        schema = load_response_schema(api_key, version)
        module = __import__(schema.__module__, fromlist=["*"])
        other = getattr(module, entity_type.__name__, None)
        if other is not None and name in _converters(other):
            _KNOWN_ELSEWHERE.add((entity_type, name))
            return
    raise KeyError(f"{entity_type.__name__} has no field {name!r} in any version")
