"""The Kafka listener: asyncio transports around `ConnectionState`, one worker per connection."""

import asyncio
import ssl
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final, Protocol, Self, cast

import structlog
from aquifer_core.errors import AquiferError

from aquifer_broker.protocol.budget import RequestBudget
from aquifer_broker.protocol.client import Client, Reply
from aquifer_broker.protocol.connection import ConnectionState
from aquifer_broker.protocol.framing import FrameTooLargeError
from aquifer_broker.protocol.traffic_metrics import connections_changed
from aquifer_broker.protocol.write_turns import WriteTurns, slices_of

__all__ = ["Dispatch", "KafkaServer"]

logger = structlog.get_logger(__name__)

_WRITE_HIGH_WATER_BYTES: Final = 1024 * 1024
_LARGE_REPLY_BYTES: Final = 256 * 1024
_STALL_S: Final = 30.0
"""Silence in the middle of a request, when others wait for its room. Clients that are alive repeat what was lost on the way much sooner."""
_SLICE_BYTES: Final = 1024 * 1024 + 64 * 1024
"""What clients ask of a partition by default, with what goes around it: a third of a millisecond. Smaller slices cost readers more."""


class Dispatch(Protocol):
    """Answers one frame."""

    def __call__(self, frame: memoryview, client: Client) -> Awaitable[Reply | None]:
        """None: no answer is sent (Produce with acks=0). `AquiferError`: the connection is closed."""
        ...


class _KafkaConnection(asyncio.BufferedProtocol):
    def __init__(self, server: "KafkaServer") -> None:
        self._server = server
        self._state = ConnectionState(
            max_request_bytes=server.max_request_bytes,
            budget=server.request_budget,
            resume=self._resume_reading,
        )
        self._arrived = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._paused = False
        self.busy = False
        self._transport: asyncio.Transport
        self._client: Client
        self._last_active_s = 0.0

    @property
    def host(self) -> str:
        """Where the client is."""
        return self._client.host

    def is_idle_since(self, oldest_s: float) -> bool:
        """No traffic since then, and neither a request in work nor one whose answer the client still takes."""
        waits_for_client = not self.busy or not self._drained.is_set()
        return waits_for_client and self._last_active_s < oldest_s

    def holds_up_others_since(self, oldest_s: float) -> bool:
        """No traffic since then, in the middle of a request, while others wait for the room that is kept for it."""
        return self._state.holds_up_others and self.is_idle_since(oldest_s)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER_BYTES)
        peer = self._transport.get_extra_info("peername") or ("unknown", 0)
        self._client = Client(host=peer[0], port=peer[1], listener=self._server.listener)
        self._touch()
        self._server.adopt(self)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._client.leave()
        self._drained.set()
        self._arrived.set()
        self._server.forget(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._state.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._touch()
        try:
            complete = self._state.received(nbytes)
        except FrameTooLargeError as error:
            logger.warning("request_refused", client=self._client.host, error=str(error))
            self._transport.abort()
            return
        if complete:
            self._arrived.set()
        if not self._state.wants_bytes and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        # A slow reader of a large answer reads all the same.
        self._touch()
        self._drained.set()

    def abort(self) -> None:
        self._transport.abort()

    async def serve(self) -> None:
        """Answers requests one after the other, those too that arrived before the client left."""
        try:
            while not self._server.draining:
                frame = self._state.next_frame()
                if frame is not None:
                    await self._answer(frame)
                elif self._client.gone:
                    break
                else:
                    self._arrived.clear()
                    await self._arrived.wait()
        except AquiferError as error:
            logger.info("connection_closed", client=self._client.host, reason=str(error))
        except Exception:
            logger.exception("request_failed", client=self._client.host)
        finally:
            self._transport.close()
            self._state.close()

    async def _answer(self, frame: memoryview) -> None:
        self.busy = True
        frame_bytes = len(frame)
        try:
            reply = await self._server.dispatch(frame, self._client)
            del frame
            if reply is not None:
                await self._send(reply)
        finally:
            self.busy = False
            self._touch()
            self._state.done(frame_bytes)

    async def _send(self, reply: Reply) -> None:
        try:
            if sum(map(len, reply.buffers)) > _LARGE_REPLY_BYTES:
                await self._send_in_slices(reply)
            elif not self._client.gone:
                self._transport.writelines(reply.buffers)
                await self._drained.wait()
        finally:
            if reply.sent is not None:
                reply.sent()

    async def _send_in_slices(self, reply: Reply) -> None:
        for piece in slices_of(reply.buffers, _SLICE_BYTES):
            await self._server.turns.next()
            if self._client.gone:
                return
            self._transport.writelines(piece)
            await self._drained.wait()

    def drain(self) -> None:
        """The broker stops: what is in work is answered soon, and nothing else."""
        self._client.hurry()
        self._arrived.set()

    def _touch(self) -> None:
        self._last_active_s = asyncio.get_running_loop().time()

    def _resume_reading(self) -> None:
        if self._paused and not self._client.gone:
            # It was the broker that was silent.
            self._touch()
            self._paused = False
            self._transport.resume_reading()


class KafkaServer:
    """Accepts connections of one listener; an async context manager.

    Leaving it stops accepting, lets requests in work finish for `drain_timeout_s` and closes all connections.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        *,
        listener: str,
        host: str,
        port: int,
        max_request_bytes: int,
        request_budget: RequestBudget,
        max_idle_s: float = 600.0,
        max_stall_s: float = _STALL_S,
        max_connections: int = 2**31 - 1,
        drain_timeout_s: float = 5.0,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.dispatch = dispatch
        self.turns = WriteTurns()
        self.listener = listener
        self.max_request_bytes = max_request_bytes
        self.request_budget = request_budget
        self.draining = False
        self._host = host
        self._port = port
        self._max_idle_s = max_idle_s
        self._max_stall_s = max_stall_s
        self._max_connections = max_connections
        self._drain_timeout_s = drain_timeout_s
        self._ssl_context = ssl_context
        self._connections: set[_KafkaConnection] = set()
        self._workers: set[asyncio.Task[None]] = set()
        self._refusing = False
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The bound port."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def connection_count(self) -> int:
        """Open connections."""
        return len(self._connections)

    @property
    def worker_count(self) -> int:
        """Connections that are served, those too whose client left before its answer."""
        return len(self._workers)

    @property
    def busy_count(self) -> int:
        """Connections with a request in work."""
        return sum(connection.busy for connection in self._connections)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _KafkaConnection(self),
            self._host,
            self._port,
            ssl=self._ssl_context,
            backlog=512,
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.draining = True
        assert self._server is not None
        self._server.close()
        for connection in tuple(self._connections):
            connection.drain()
        await self._join_workers(self._drain_timeout_s)
        for task in self._workers:
            task.cancel()
        await self._join_workers(None)
        for connection in tuple(self._connections):
            connection.abort()
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self._server.wait_closed()

    async def close_idle(self) -> None:
        """Closes connections without traffic for `connections.max.idle.ms`, or that hold up others; called now and then."""
        now_s = asyncio.get_running_loop().time()
        for connection in tuple(self._connections):
            if connection.holds_up_others_since(now_s - self._max_stall_s):
                logger.warning("client_stalled", listener=self.listener, client=connection.host)
                connection.abort()
            elif connection.is_idle_since(now_s - self._max_idle_s):
                connection.abort()

    def adopt(self, connection: _KafkaConnection) -> None:
        """Starts the worker of a new connection."""
        self._connections.add(connection)
        connections_changed(1)
        is_full = len(self._connections) > self._max_connections
        if is_full and not self._refusing:
            self._refusing = True
            logger.warning(
                "connections_refused", listener=self.listener, max_connections=self._max_connections
            )
        if self.draining or is_full:
            connection.abort()
            return
        self._refusing = False
        worker = asyncio.get_running_loop().create_task(connection.serve())
        self._workers.add(worker)
        worker.add_done_callback(self._workers.discard)

    def forget(self, connection: _KafkaConnection) -> None:
        """The connection is gone; its worker ends when it has answered what it had received."""
        self._connections.discard(connection)
        connections_changed(-1)

    async def _join_workers(self, timeout_s: float | None) -> None:
        if self._workers:
            await asyncio.wait(tuple(self._workers), timeout=timeout_s)
