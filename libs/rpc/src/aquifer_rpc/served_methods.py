"""The server side of every RPC: deadline, errors, request id, trace, log line and metrics, for all four shapes.

A streaming handler is driven here with `context.write`, not handed to gRPC as a generator: so a deadline that passes while a
message is being written, and a failure after the first message, are answered the same way as any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, aclosing
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio
from aquifer_core.errors import DeadlineExceededError, ErrorReason, RemoteStorageUnavailableError

from aquifer_rpc.rpc_record import RpcRecord
from aquifer_rpc.settings import GrpcServerSettings
from aquifer_rpc.where import innermost_frame

_RESERVE_SHARE: Final = 0.05
_CANCELLATION_S: Final = 5.0

# In quotes: the classes are generic in their stubs only.
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Behavior: TypeAlias = Callable[[Any, Context], Awaitable[Any]]
Decoder: TypeAlias = Callable[[bytes], Any]


class ServedMethods(grpc.GenericRpcHandler):
    """The methods of a server, each in a wrapper of its own that is made when it is called for the first time.

    Generated code adds servicers to it as to a server. It is no interceptor: gRPC would run one more coroutine for every RPC.
    Endless methods are streams without a deadline of their own; `end_watches` ends them when the server drains.
    """

    def __init__(
        self,
        settings: GrpcServerSettings,
        *,
        endless_methods: frozenset[str],
        decoders: Mapping[str, Decoder],
    ) -> None:
        self.service_names: list[str] = []
        self._settings = settings
        self._decoders = decoders
        self._endless_methods = endless_methods
        self._watches: set[asyncio.Timeout] = set()
        self._added: list[grpc.GenericRpcHandler] = []
        self._watched: dict[str, Handler] = {}
        self._draining = False

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.ServiceRpcHandler]) -> None:
        """Takes the methods of a service, and its full name, which generated code does not export."""
        for handler in handlers:
            self.service_names.append(handler.service_name())
            self._added.append(handler)

    def add_registered_method_handlers(
        self, service_name: str, handlers: Mapping[str, Handler]
    ) -> None:
        """Nothing: these are the same methods again."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        """The wrapped handler of a method; unknown methods stay unknown."""
        known = self._watched.get(handler_call_details.method)
        return self._wrapped(handler_call_details) if known is None else known

    def _wrapped(self, details: grpc.HandlerCallDetails) -> Handler | None:
        for added in self._added:
            handler = added.service(details)
            if handler is not None:
                watch_over = self._streaming if handler.response_streaming else self._unary
                watched = self._watched[details.method] = watch_over(details.method, handler)
                return watched
        return None

    def end_watches(self) -> None:
        """Ends every endless stream now with UNAVAILABLE, and refuses new ones."""
        self._draining = True
        now = asyncio.get_running_loop().time()
        for timeout in self._watches:
            if not timeout.expired():  # else it ends already, as soon as its handler has cleaned up
                timeout.reschedule(now)

    def _unary(self, method: str, handler: Handler) -> Handler:
        streams = handler.request_streaming
        behavior: Any = handler.stream_unary if streams else handler.unary_unary
        make: Any = (
            grpc.stream_unary_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler
        )

        async def serve(request: Any, context: Context) -> Any:
            return await self._serve(method, context, behavior, request)

        return self._rebuilt(make, serve, method, handler)

    def _streaming(self, method: str, handler: Handler) -> Handler:
        streams = handler.request_streaming
        behavior: Any = handler.stream_stream if streams else handler.unary_stream
        make: Any = (
            grpc.stream_stream_rpc_method_handler
            if streams
            else grpc.unary_stream_rpc_method_handler
        )

        async def drive(request: Any, context: Context) -> None:
            answers = behavior(request, context)
            if not hasattr(answers, "__aiter__"):
                await answers
                return
            write = context.write
            async with AsyncExitStack() as stack:
                if hasattr(answers, "aclose"):
                    await stack.enter_async_context(aclosing(answers))
                async for answer in answers:
                    try:
                        await write(answer)
                    except grpc.aio.InternalError:
                        # Refused since the caller has left; that it did reaches this task a moment later, as a cancellation.
                        await asyncio.sleep(_CANCELLATION_S)
                        raise

        async def serve(request: Any, context: Context) -> None:
            await self._serve(method, context, drive, request)

        return self._rebuilt(make, serve, method, handler)

    # Coroutines where context managers would read better: this is on the path of every RPC, and generators are slow.
    async def _serve(self, method: str, context: Context, behavior: Behavior, request: Any) -> Any:
        with RpcRecord(method, context) as record:
            try:
                return await self._within_deadline(method, context, behavior, request)
            except grpc.aio.AbortError:
                record.aborted(context)
                raise
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling() > 0:
                    record.cancelled()
                    raise
                await record.fail(error, context)
            except Exception as error:
                await record.fail(error, context)

    async def _within_deadline(
        self, method: str, context: Context, behavior: Behavior, request: Any
    ) -> Any:
        endless = method in self._endless_methods
        remaining_s = context.time_remaining()
        given_s = remaining_s if remaining_s is not None or endless else self._settings.max_rpc_s
        budget_s = None if given_s is None else self._budget_s(method, given_s)
        if endless and self._draining:
            raise _draining_error()
        timeout = asyncio.timeout(budget_s)
        if endless:
            self._watches.add(timeout)
        try:
            async with timeout:
                return await behavior(request, context)
        except TimeoutError as error:
            if not timeout.expired():
                raise
            if endless and self._draining:
                raise _draining_error() from None
            raise _deadline_error(method, budget_s, error) from error
        finally:
            self._watches.discard(timeout)

    def _budget_s(self, method: str, given_s: float) -> float:
        if given_s < self._settings.min_remaining_s:
            text = f"{method}: only {given_s * 1000:.1f} ms were left, nothing was started"
            raise DeadlineExceededError(text)
        return given_s - min(self._settings.deadline_reserve_s, given_s * _RESERVE_SHARE)

    def _rebuilt(
        self, make: Any, serve: Callable[..., Awaitable[Any]], method: str, handler: Handler
    ) -> Handler:
        made: Handler = make(
            serve,
            request_deserializer=self._decoders.get(method, handler.request_deserializer),
            response_serializer=_unless_encoded(handler.response_serializer),
        )
        return made


def _unless_encoded(serialize: Callable[[Any], bytes] | None) -> Callable[[Any], bytes]:
    """Lets handlers of streams of large messages give them in their encoded form, and so save copies."""

    def encoded(message: Any) -> bytes:
        return message if serialize is None or type(message) is bytes else serialize(message)

    return encoded


def _draining_error() -> RemoteStorageUnavailableError:
    return RemoteStorageUnavailableError(
        "the server is stopping, watch again elsewhere",
        reason=ErrorReason.NOT_READY,
        retry_after_ms=0,
    )


def _deadline_error(
    method: str, budget_s: float | None, error: TimeoutError
) -> DeadlineExceededError:
    """Names the innermost function of ours that was waiting when time was up."""
    place = innermost_frame(error.__cause__ or error)
    waited = "" if budget_s is None else f" after {budget_s * 1000:.0f} ms"
    return DeadlineExceededError(f"{method}: time was up{waited} while in {place}")
