"""A channel with TLS, connected anew when the files of its certificates have changed."""

import asyncio
import contextvars
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
import grpc.aio
import structlog

from aquifer_rpc.credentials import client_credentials
from aquifer_rpc.tls_files import TlsFiles

logger = structlog.get_logger(__name__)

Make = Callable[[grpc.ChannelCredentials], grpc.aio.Channel]


@dataclass(slots=True, kw_only=True, eq=False)
class _Connection:
    """One of gRPC's channels, whose credentials are fixed, and the calls under way on it."""

    channel: grpc.aio.Channel
    calls: int = 0
    retired: bool = False
    unused: asyncio.Event = field(default_factory=asyncio.Event)

    def begun(self) -> None:
        self.calls += 1

    def ended(self, _call: object = None) -> None:
        self.calls -= 1
        self.note_unused()

    def note_unused(self) -> None:
        if self.retired and not self.calls:
            self.unused.set()


class RenewedChannel(grpc.aio.Channel):
    """Calls begin with the newest certificates; those under way end on the connection on which they began.

    Files are looked at when a call begins, not more often than the settings say. A connection that no call uses any more
    is closed.
    """

    def __init__(self, make: Make, files: TlsFiles) -> None:
        """Connects lazily, as every channel.

        Args:
            make: makes a channel with the credentials given.
            files: of the certificates.
        """
        self._make = make
        self._files = files
        self._material = files.current()
        self._connection = self._made()
        self._retired: dict[asyncio.Task[None], _Connection] = {}
        self._closed = False

    def connection(self) -> _Connection:
        """Where calls begin now."""
        material = self._files.current()
        if material is not self._material and not self._closed:
            self._material = material
            former, self._connection = self._connection, self._made()
            self._retire(former)
        return self._connection

    async def __aenter__(self) -> "RenewedChannel":
        return self

    async def __aexit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Closes every connection; calls under way fail after the grace."""
        self._closed = True
        retired, self._retired = self._retired, {}
        for task in retired:
            task.cancel()
        if retired:
            await asyncio.wait(retired)
        connections = (self._connection, *retired.values())
        await asyncio.gather(*(each.channel.close(grace) for each in connections))

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """State of the newest connection."""
        return self.connection().channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Waits for the newest connection."""
        with self._using() as channel:
            await channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Waits until the newest connection is established; give it a deadline."""
        with self._using() as channel:
            await channel.channel_ready()

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        """Called by stubs."""
        return _Callable(self, "unary_unary", args, kwargs)

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        """Called by stubs."""
        return _Callable(self, "unary_stream", args, kwargs)

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        """Called by stubs."""
        return _Callable(self, "stream_unary", args, kwargs)

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        """Called by stubs."""
        return _Callable(self, "stream_stream", args, kwargs)

    @contextmanager
    def _using(self) -> Iterator[grpc.aio.Channel]:
        connection = self.connection()
        connection.begun()
        try:
            yield connection.channel
        finally:
            connection.ended()

    def _made(self) -> _Connection:
        return _Connection(channel=self._make(client_credentials(self._material)))

    def _retire(self, former: _Connection) -> None:
        former.retired = True
        former.note_unused()
        # Without the request id and the span of the call that happened to come first.
        task = asyncio.create_task(self._close_unused(former), context=contextvars.Context())
        self._retired[task] = former
        task.add_done_callback(self._retired_is_closed)

    async def _close_unused(self, former: _Connection) -> None:
        await former.unused.wait()
        await former.channel.close()

    def _retired_is_closed(self, task: asyncio.Task[None]) -> None:
        self._retired.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("connection_not_closed", error=str(error), exc_info=error)


class _Callable:
    """A method on the connection that is the newest when it is called."""

    def __init__(
        self, owner: RenewedChannel, shape: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._owner: Final = owner
        self._shape: Final = shape
        self._args: Final = args
        self._kwargs: Final = kwargs
        self._connection: _Connection | None = None
        self._inner: Any = None

    def __call__(self, *request: Any, **options: Any) -> Any:
        connection = self._owner.connection()
        if connection is not self._connection:
            self._inner = getattr(connection.channel, self._shape)(*self._args, **self._kwargs)
            self._connection = connection
        call = self._inner(*request, **options)
        connection.begun()
        call.add_done_callback(connection.ended)
        return call
