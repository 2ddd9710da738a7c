"""Sends the messages of a call, and notes how its peer ended it."""

import asyncio
from collections.abc import AsyncIterable, Coroutine
from typing import Any

import grpc.aio

from aquifer_rpc.errors import is_made_up


class Sender:
    """Sends messages until there are no more, or the call ends.

    A message that is on its way when the status comes cannot be sent any more. grpc.aio then ends the call a second time, with a
    status that it makes up, and who awaits the call gets the later of the two.
    """

    def __init__(self, call: Any) -> None:
        """Nothing is sent yet."""
        self.connected = False
        """Whether there is a peer; before that no message was asked for."""
        self._error: grpc.aio.AioRpcError | None = None
        self._sending: asyncio.Timeout | None = None
        self._call = call

    async def send(self, messages: AsyncIterable[Any]) -> None:
        """Sends all, and says that these were all; ends when the call does, whatever is waited for.

        The next message may be far, and a call that its channel cancels in its first moments leaves a writer waiting for ever.

        Raises:
            AioRpcError: there is no peer.
        """
        sending = asyncio.timeout(None)
        try:
            async with sending:
                self._sending = sending
                self._call.add_done_callback(self._ended)
                await self._send(messages)
        except TimeoutError:
            if not sending.expired():
                raise
        finally:
            self._sending = None

    async def _send(self, messages: AsyncIterable[Any]) -> None:
        await self._call.wait_for_connection()
        self.connected = True
        async for message in messages:
            if not await self._written(message):
                return
        await self._written(None)

    async def _written(self, message: Any | None) -> bool:
        """Sends a message, or the end of messages; False when the peer has answered already."""
        try:
            if message is None:
                await self._call.done_writing()
            else:
                await self._call.write(message)
        except (grpc.aio.AioRpcError, grpc.aio.InternalError, asyncio.InvalidStateError):
            return False
        return True

    def instead_of(self, error: BaseException) -> BaseException:
        """What the peer said where the error says only that a message could not be sent, else the error."""
        made_up = isinstance(error, grpc.aio.AioRpcError) and is_made_up(
            error.code(), error.details() or ""
        )
        return self._error if made_up and self._error is not None else error

    def _ended(self, call: Any) -> None:
        """Called inside grpc.aio as it sets a status, the only moment at which one that is written over can be read."""
        error = _at_once(_error_of(call))
        if error is not None and not is_made_up(error.code(), error.details() or ""):
            self._error = error
        if self._sending is not None and not self._sending.expired():
            self._sending.reschedule(asyncio.get_running_loop().time())


async def _error_of(call: Any) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(
        await call.code(),
        grpc.aio.Metadata(),
        await call.trailing_metadata(),
        details=await call.details(),
        debug_error_string=await call.debug_error_string(),
    )


def _at_once(
    coroutine: Coroutine[Any, Any, grpc.aio.AioRpcError],
) -> grpc.aio.AioRpcError | None:
    """The result of a coroutine that has nothing to wait for; None when it waits after all."""
    try:
        coroutine.send(None)
    except StopIteration as finished:
        error: grpc.aio.AioRpcError = finished.value
        return error
    coroutine.close()
    return None
