"""Frames to handlers and answers to frames, by API key."""

import asyncio
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kio.schema.errors import ErrorCode

from aquifer_broker.protocol.budget import ResponseBudget
from aquifer_broker.protocol.client import Client, Reply
from aquifer_broker.protocol.codec import Request, UnsupportedVersionError, decode, encode
from aquifer_broker.protocol.traffic_metrics import request_served
from aquifer_broker.protocol.versions import SUPPORTED, ApiKey

__all__ = ["Answer", "Call", "Dispatcher", "Handler"]

_MANY_TOPICS: Final = 100

Answer = dict[str, Any]
"""A response in the newest version's field names, see `protocol.entities`."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request with what is known of its sender."""

    request: Request
    client: Client

    @property
    def body(self) -> Any:
        """The kio entity."""
        return self.request.body

    @property
    def version(self) -> int:
        """Version of the API."""
        return self.request.api_version


class Handler(Protocol):
    """Answers the requests of one API; None only for Produce with acks=0."""

    def __call__(self, call: Call) -> Awaitable[Answer | None]:
        """Must not raise for anything that the protocol has an error code for."""
        ...


class Dispatcher:
    """Implements `protocol.server.Dispatch` over one handler per supported API."""

    def __init__(
        self, handlers: Mapping[ApiKey, Handler], *, response_budget: ResponseBudget
    ) -> None:
        """Takes exactly one handler for each API of the version table.

        Raises:
            ValueError: a handler is missing, so that something would be advertised that is not implemented.
        """
        missing = SUPPORTED.keys() ^ handlers.keys()
        if missing:
            raise ValueError(f"no handler, or no versions, for {sorted(missing)}")
        self._handlers = dict(handlers)
        self._response_budget = response_budget

    async def __call__(self, frame: memoryview, client: Client) -> Reply | None:
        """Decodes, handles, encodes."""
        try:
            request = decode(frame)
        except UnsupportedVersionError as error:
            if error.api_key is not ApiKey.API_VERSIONS:
                raise
            return Reply(
                encode(error.api_key, 0, error.correlation_id, _unsupported_api_versions())
            )
        del frame
        started_s = time.perf_counter()
        answer = await self._handlers[request.api_key](Call(request, client))
        request_served(request.api_key, time.perf_counter() - started_s)
        if answer is None:
            return None
        buffers = await _encoded(request, answer)
        if request.api_key is not ApiKey.FETCH:
            return Reply(buffers)
        size_bytes = sum(map(len, buffers))
        self._response_budget.hold(size_bytes)
        return Reply(buffers, lambda: self._response_budget.release(size_bytes))


async def _encoded(request: Request, answer: Answer) -> list[bytes | bytearray | memoryview]:
    """Encodes; a description of many topics in a thread, so that it does not hold up everybody else."""
    arguments = (request.api_key, request.api_version, request.correlation_id, answer)
    if request.api_key is ApiKey.METADATA and len(answer["topics"]) > _MANY_TOPICS:
        return await asyncio.to_thread(encode, *arguments)
    return encode(*arguments)


def _unsupported_api_versions() -> Answer:
    """Version 0 with the range of ApiVersions itself, so that the client can ask again (KIP-511)."""
    supported = SUPPORTED[ApiKey.API_VERSIONS]
    return {
        "error_code": ErrorCode.unsupported_version,
        "api_keys": [
            {
                "api_key": ApiKey.API_VERSIONS,
                "min_version": supported.lowest,
                "max_version": supported.highest,
            }
        ],
    }
