"""Bytes to requests and responses to bytes, through kio, without copying records."""

import functools
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aquifer_core.errors import InvalidRequestError
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.serial.readers import read_int16

from aquifer_broker.protocol.entities import build
from aquifer_broker.protocol.request_shape import (
    ArrayTooLongError,
    array_check,
    without_unknown_tags,
)
from aquifer_broker.protocol.versions import SUPPORTED, ApiKey

__all__ = ["BufferChain", "MalformedRequestError", "Request", "decode", "encode"]

_REFERENCE_FROM_BYTES: Final = 4096
"""Buffers of this size and above are handed on by reference, smaller ones are copied together."""


class MalformedRequestError(InvalidRequestError):
    """Bytes that are no request of an API and version that this broker speaks."""


class UnsupportedVersionError(MalformedRequestError):
    """The API is known, its version is not."""

    def __init__(self, api_key: ApiKey, api_version: int, correlation_id: int) -> None:
        super().__init__(f"{api_key.name} version {api_version} is not supported")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A decoded request; `body` is the kio entity of its version."""

    api_key: ApiKey
    api_version: int
    correlation_id: int
    client_id: str | None
    body: Any
    size_bytes: int


class BufferChain:
    """Record bytes in several pieces that go out as one field, without being joined."""

    __slots__ = ("pieces", "size_bytes")

    def __init__(self, pieces: Sequence[bytes | memoryview]) -> None:
        self.pieces = pieces
        self.size_bytes = sum(map(len, pieces))

    def __len__(self) -> int:
        return self.size_bytes


class _FrameSink:
    """What kio writes into: small writes are gathered, large buffers kept as they are."""

    __slots__ = ("_gathered", "_segments")

    def __init__(self) -> None:
        self._gathered = bytearray(4)
        self._segments: list[bytes | bytearray | memoryview] = [self._gathered]

    def write(self, data: bytes | memoryview | BufferChain) -> None:
        if type(data) is bytes and len(data) < _REFERENCE_FROM_BYTES:
            # Almost everything is a field of a few bytes.
            self._gathered += data
            return
        if isinstance(data, BufferChain):
            self._segments.extend(data.pieces)
        else:
            self._segments.append(data)
        self._gathered = bytearray()
        self._segments.append(self._gathered)

    def finish(self) -> list[bytes | bytearray | memoryview]:
        size_bytes = sum(map(len, self._segments)) - 4
        first = self._segments[0]
        assert isinstance(first, bytearray)
        first[:4] = size_bytes.to_bytes(4, "big")
        return [segment for segment in self._segments if len(segment)]


@functools.cache
def _request_readers(
    api_key: ApiKey, version: int
) -> tuple[Callable[..., Any], Callable[..., Any], Callable[[memoryview, int], int]]:
    schema = load_request_schema(api_key, version)
    return entity_reader(schema.__header_schema__), entity_reader(schema), array_check(schema)


@functools.cache
def _response_writers(
    api_key: ApiKey, version: int
) -> tuple[Any, Any, Callable[..., None], Callable[..., None]]:
    schema = load_response_schema(api_key, version)
    header: Any = schema.__header_schema__
    return header, schema, entity_writer(header), entity_writer(schema)


def decode(frame: memoryview) -> Request:
    """Reads a frame (without its size). Record bytes are copied out, so the frame may go afterwards.

    Raises:
        UnsupportedVersionError: answered for ApiVersions, otherwise the connection is closed as Kafka does.
        MalformedRequestError: the connection is closed.
    """
    try:
        return _decode(frame)
    except (
        KeyError,
        SerialError,
        ValueError,
        IndexError,
        OverflowError,
        struct.error,
        ArrayTooLongError,
    ) as error:
        raise MalformedRequestError(f"cannot read a request: {error}") from error


def _decode(frame: memoryview) -> Request:
    api_number, size = read_int16(frame, 0)
    version, _ = read_int16(frame, size)
    try:
        api_key = ApiKey(api_number)
    except ValueError:
        raise MalformedRequestError(f"api key {api_number} is not known") from None
    supported = SUPPORTED[api_key]
    if not supported.lowest <= version <= supported.highest:
        correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
        raise UnsupportedVersionError(api_key, version, correlation_id)
    try:
        header, body = _read(api_key, version, frame)
    except KeyError:
        # The reader's word for a tagged field that it does not know, which is to be ignored (KIP-482).
        schema = load_request_schema(api_key, version)
        header, body = _read(api_key, version, without_unknown_tags(frame, schema))
    return Request(
        api_key=api_key,
        api_version=version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
        body=body,
        size_bytes=len(frame),
    )


def _read(api_key: ApiKey, version: int, frame: memoryview) -> tuple[Any, Any]:
    read_header, read_body, check_arrays = _request_readers(api_key, version)
    header, header_size = read_header(frame, 0)
    check_arrays(frame, header_size)
    body, _ = read_body(frame, header_size)
    return header, body


def encode(
    api_key: ApiKey, version: int, correlation_id: int, answer: dict[str, Any]
) -> list[bytes | bytearray | memoryview]:
    """Writes a response frame as buffers to send one after the other; records stay where they are."""
    header_schema, schema, write_header, write_body = _response_writers(api_key, version)
    sink = _FrameSink()
    write_header(sink, header_schema(correlation_id=correlation_id))
    write_body(sink, build(schema, answer))
    return sink.finish()
