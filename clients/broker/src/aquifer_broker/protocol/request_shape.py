"""Where the fields of a request lie, without making values of them: what kio's native reader must not be given.

It makes room for as many elements as an array announces before it reads one, and an allocation that fails ends the process: forty bytes
from anybody would do. And it refuses tagged fields it does not know, which receivers have to ignore (KIP-482).
"""

import dataclasses
import functools
import struct
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from aquifer_core.errors import InvalidRequestError

__all__ = ["ArrayTooLongError", "array_check", "without_unknown_tags"]

Skip = Callable[[memoryview, int], int]
"""From the position of a field to the one behind it."""
_Tags = Callable[[frozenset[int]], Skip]
"""What to do at tagged fields, by the tags that are known there."""
_Section = tuple[int, int, frozenset[int]]
"""Start and end of tagged fields, and the tags that are known there."""

_FIXED_BYTES: Final[Mapping[str, int]] = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
    "datetime_i64": 8,
}
_INT16: Final = struct.Struct(">h").unpack_from
_INT32: Final = struct.Struct(">i").unpack_from


class ArrayTooLongError(InvalidRequestError):
    """An array announces more elements than there are bytes left."""


class _Shape(NamedTuple):
    """How a field or an entity lies in a frame; `fixed_bytes` is None when its size depends on what is in it."""

    skip: Skip
    least_bytes: int
    fixed_bytes: int | None


@functools.cache
def array_check(schema: type[Any]) -> Skip:
    """The check of one kind of request, from the position of its body.

    It raises `ArrayTooLongError`, or `IndexError` and `struct.error` where the bytes end too early.
    """
    return _entity(schema, lambda _: _skip_tags).skip


def without_unknown_tags(frame: memoryview, schema: Any) -> memoryview:
    """The same request without the tagged fields that its version here does not know.

    Raises:
        IndexError, struct.error: the bytes end too early.
    """
    find, sections = _section_finder(schema)
    sections.clear()
    # The header's client id is of the older kind, and no tag of a header is known.
    start = _skip_string(frame, 8)
    end = _skip_tags(frame, start)
    find(frame, end)
    pieces: list[memoryview | bytes] = []
    copied = 0
    for section_start, section_end, known in [(start, end, frozenset[int]()), *sections]:
        pieces += [frame[copied:section_start], *_known_tags(frame, section_start, known)]
        copied = section_end
    return memoryview(b"".join([*pieces, frame[copied:]]))


@functools.cache
def _section_finder(schema: type[Any]) -> tuple[Skip, list[_Section]]:
    sections: list[_Section] = []

    def tags(known: frozenset[int]) -> Skip:
        def note(buffer: memoryview, position: int) -> int:
            end = _skip_tags(buffer, position)
            sections.append((position, end, known))
            return end

        return note

    return _entity(schema, tags).skip, sections


def _known_tags(
    buffer: memoryview, position: int, known: frozenset[int]
) -> list[memoryview | bytes]:
    count, position = _unsigned(buffer, position)
    kept: list[memoryview | bytes] = []
    for _ in range(count):
        start = position
        tag, position = _unsigned(buffer, position)
        size, position = _unsigned(buffer, position)
        position += size
        if tag in known:
            kept.append(buffer[start:position])
    # Nothing here has as many as would need a second byte.
    return [bytes([len(kept)]), *kept]


def _entity(schema: type[Any], tags: _Tags) -> _Shape:
    flexible: bool = schema.__flexible__
    hints = typing.get_type_hints(schema)
    fields = dataclasses.fields(schema)
    shapes = [
        _field(field.metadata.get("kafka_type"), hints[field.name], flexible, tags)
        for field in fields
        if "tag" not in field.metadata
    ]
    if flexible:
        known = frozenset(field.metadata["tag"] for field in fields if "tag" in field.metadata)
        shapes.append(_Shape(tags(known), 1, None))
    return _sequence(shapes)


def _field(kafka_type: str | None, hint: Any, flexible: bool, tags: _Tags) -> _Shape:
    inner = _without_none(hint)
    if typing.get_origin(inner) is tuple:
        (item, _) = typing.get_args(inner)
        element = _entity(item, tags) if kafka_type is None else _scalar(kafka_type, flexible)
        return _array(element, flexible)
    return _entity(inner, tags) if kafka_type is None else _scalar(kafka_type, flexible)


def _scalar(kafka_type: str, flexible: bool) -> _Shape:
    fixed_bytes = _FIXED_BYTES.get(kafka_type)
    if fixed_bytes is not None:
        return _Shape(lambda _, position: position + fixed_bytes, fixed_bytes, fixed_bytes)
    if flexible:
        return _Shape(_skip_compact, 1, None)
    if kafka_type == "string":
        return _Shape(_skip_string, 2, None)
    return _Shape(_skip_bytes, 4, None)


def _array(element: _Shape, flexible: bool) -> _Shape:
    skip, least_bytes, fixed_bytes = element

    def skip_array(buffer: memoryview, position: int) -> int:
        if flexible:
            count, position = _unsigned(buffer, position)
            count -= 1
        else:
            (count,) = _INT32(buffer, position)
            position += 4
        if count <= 0:
            return position
        if count * least_bytes > len(buffer) - position:
            raise ArrayTooLongError(
                f"an array announces {count} elements, {len(buffer) - position} bytes are left"
            )
        if fixed_bytes is not None:
            return position + count * fixed_bytes
        for _ in range(count):
            position = skip(buffer, position)
        return position

    return _Shape(skip_array, 1 if flexible else 4, None)


def _sequence(shapes: Sequence[_Shape]) -> _Shape:
    """Fields one after the other; neighbours of fixed size are passed over in one step."""
    steps: list[tuple[int, Skip | None]] = []
    run_bytes = 0
    for shape in shapes:
        if shape.fixed_bytes is not None:
            run_bytes += shape.fixed_bytes
        else:
            steps.append((run_bytes, shape.skip))
            run_bytes = 0
    if not steps:
        return _Shape(lambda _, position: position + run_bytes, run_bytes, run_bytes)
    if run_bytes:
        steps.append((run_bytes, None))

    def skip_all(buffer: memoryview, position: int) -> int:
        for step_bytes, skip in steps:
            position += step_bytes
            if skip is not None:
                position = skip(buffer, position)
        return position

    return _Shape(skip_all, sum(shape.least_bytes for shape in shapes), None)


def _skip_string(buffer: memoryview, position: int) -> int:
    size: int = _INT16(buffer, position)[0]
    return position + 2 + max(size, 0)


def _skip_bytes(buffer: memoryview, position: int) -> int:
    size: int = _INT32(buffer, position)[0]
    return position + 4 + max(size, 0)


def _skip_compact(buffer: memoryview, position: int) -> int:
    size, position = _unsigned(buffer, position)
    return position + max(size - 1, 0)


def _skip_tags(buffer: memoryview, position: int) -> int:
    if buffer[position] == 0:
        return position + 1
    count, position = _unsigned(buffer, position)
    for _ in range(count):
        _, position = _unsigned(buffer, position)
        size, position = _unsigned(buffer, position)
        position += size
    return position


def _unsigned(buffer: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes, and the position behind it."""
    byte = buffer[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = buffer[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    return value, position + 1


def _without_none(hint: Any) -> Any:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        (inner,) = (part for part in typing.get_args(hint) if part is not type(None))
        return inner
    return hint
