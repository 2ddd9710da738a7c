"""Calls with everything on: deadline, retries, trace, request id, domain errors. For stubs made on a `Channel`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc
import grpc.aio

from aquifer_rpc.attempts import CALL_FAILURES, Attempts, CallOptions
from aquifer_rpc.call_record import CallRecord
from aquifer_rpc.endpoints import Endpoint, Endpoints
from aquifer_rpc.retry import RetryPolicy
from aquifer_rpc.sender import Sender

Req = TypeVar("Req")
Res = TypeVar("Res")

FOREVER: Final = float("inf")


async def call_unary(
    method: grpc.aio.UnaryUnaryMultiCallable[Req, Res],
    request: Req,
    *,
    deadline_s: float | None = None,
    retry: bool = True,
    affinity: bytes | None = None,
) -> Res:
    """Calls a unary RPC.

    Args:
        method: of a stub made on a `Channel`.
        request: the message.
        deadline_s: for all attempts together; None takes the channel's default.
        retry: whether UNAVAILABLE and RESOURCE_EXHAUSTED are repeated.
        affinity: key that picks the endpoint when there are several.

    Raises:
        AquiferError: what the server answered, or why it did not.
    """
    answer: Res = await _ours(method).unary(request, deadline_s, retry, affinity)
    return answer


def call_stream(
    method: grpc.aio.UnaryStreamMultiCallable[Req, Res],
    request: Req,
    *,
    deadline_s: float | None = None,
    retry: bool = True,
    affinity: bytes | None = None,
) -> AsyncGenerator[Res, None]:
    """Calls a server-streaming RPC; repeated only before its first message. Closing the generator cancels the RPC.

    Args:
        method: of a stub made on a `Channel`.
        request: the message.
        deadline_s: for the whole stream; `FOREVER` for a stream without end; None takes the channel's default.
        retry: whether UNAVAILABLE and RESOURCE_EXHAUSTED are repeated.
        affinity: key that picks the endpoint when there are several.

    Raises:
        AquiferError: what the server answered, or why it did not; also after messages.
    """
    return _ours(method).stream(request, deadline_s, retry, affinity)


async def call_upload(
    method: grpc.aio.StreamUnaryMultiCallable[Req, Res],
    requests: AsyncIterable[Req],
    *,
    deadline_s: float | None = None,
    affinity: bytes | None = None,
) -> Res:
    """Calls a client-streaming RPC; repeated only until a server is connected, since the requests can be read once.

    An answer before the last request ends the call, and the remaining requests are not read. A failing source of requests
    cancels the RPC.

    Args:
        method: of a stub made on a `Channel`.
        requests: messages in order; read no faster than the server takes them.
        deadline_s: None takes the channel's default.
        affinity: key that picks the endpoint when there are several.

    Raises:
        AquiferError: what the server answered, or why it did not.
    """
    answer: Res = await _ours(method).upload(requests, deadline_s, affinity)
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A method of a stub on a `Channel`: grpc's own callable for each endpoint, and how to call them.

    Called directly (`await stub.X(request, timeout=1)`, `async for x in stub.Y(request)`) it behaves as the functions above.
    """

    name: str
    inner: dict[str, Any]
    endpoints: Endpoints
    policy: RetryPolicy
    default_deadline_s: float
    request_streaming: bool
    response_streaming: bool

    def __call__(self, request: Any, *, timeout: float | None = None) -> Any:
        """Calls by shape; `timeout` is the deadline in seconds."""
        if self.request_streaming:
            return self.upload(request, timeout, None)
        return (self.stream if self.response_streaming else self.unary)(
            request, timeout, True, None
        )

    async def unary(
        self, request: Any, deadline_s: float | None, retry: bool, affinity: bytes | None
    ) -> Any:
        """See `call_unary`."""
        with CallRecord(self.name) as record:
            attempts = self._attempts(deadline_s, retry, affinity, record)
            while True:
                endpoint, timeout_s = attempts.next()
                try:
                    answer = await self._start(endpoint, record, timeout_s, request)
                except CALL_FAILURES as error:
                    await attempts.failed(endpoint, error)
                else:
                    attempts.succeeded(endpoint)
                    return answer

    async def stream(
        self, request: Any, deadline_s: float | None, retry: bool, affinity: bytes | None
    ) -> AsyncGenerator[Any, None]:
        """See `call_stream`."""
        with CallRecord(self.name) as record:
            attempts = self._attempts(deadline_s, retry, affinity, record)
            while True:
                endpoint, timeout_s = attempts.next()
                started, call = False, None
                try:
                    call = self._start(endpoint, record, timeout_s, request)
                    while (message := await call.read()) is not grpc.aio.EOF:
                        started = True
                        yield message
                except CALL_FAILURES as error:
                    if started:
                        attempts.give_up(endpoint, error)
                    await attempts.failed(endpoint, error)
                else:
                    attempts.succeeded(endpoint)
                    return
                finally:
                    _cancel(call)

    async def upload(
        self, requests: AsyncIterable[Any], deadline_s: float | None, affinity: bytes | None
    ) -> Any:
        """See `call_upload`."""
        with CallRecord(self.name) as record:
            attempts = self._attempts(deadline_s, True, affinity, record)
            while True:
                endpoint, timeout_s = attempts.next()
                call = sender = None
                try:
                    call = self._start(endpoint, record, timeout_s)
                    sender = Sender(call)
                    await sender.send(requests)
                    answer = await call
                except CALL_FAILURES as error:
                    if sender is None or not sender.connected:
                        await attempts.failed(endpoint, error)
                    else:
                        attempts.give_up(endpoint, sender.instead_of(error))
                else:
                    attempts.succeeded(endpoint)
                    return answer
                finally:
                    _cancel(call)

    def _attempts(
        self,
        deadline_s: float | None,
        retry: bool,
        affinity: bytes | None,
        record: CallRecord,
    ) -> Attempts:
        chosen_s = self.default_deadline_s if deadline_s is None else deadline_s
        options = CallOptions(
            deadline_s=None if chosen_s == FOREVER else chosen_s, retry=retry, affinity=affinity
        )
        return Attempts(self.endpoints, self.policy, options, record)

    def _start(
        self, endpoint: Endpoint, record: CallRecord, timeout_s: float | None, *request: Any
    ) -> Any:
        inner = self.inner[endpoint.target]
        return inner(*request, timeout=timeout_s, metadata=record.metadata)


def _ours(method: Any) -> Method:
    if not isinstance(method, Method):
        raise TypeError("the stub was not made on an aquifer_rpc Channel")
    return method


def _cancel(call: Any | None) -> None:
    """Ends a call that is still under way, whatever the reason it is left for."""
    if call is not None:
        call.cancel()
