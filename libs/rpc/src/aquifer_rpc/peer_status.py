"""The status that ended a call, kept from what grpc.aio writes over it."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio

from aquifer_rpc.errors import is_made_up


class PeerStatus:
    """Notes how the peer of a call that sends messages ended it.

    A message that is on its way when the status comes cannot be sent any more. grpc.aio then ends the call a second time, with a
    status that it makes up, and who awaits the call gets the later of the two.
    """

    def __init__(self, call: Any) -> None:
        """Listens as soon as messages are sent."""
        self._error: grpc.aio.AioRpcError | None = None
        self._sending: asyncio.Timeout | None = None
        self._call = call

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Messages are sent inside, which is left when the call ends, whatever is waited for.

        The next message may be far, and a call that its channel cancels in its first moments leaves a writer waiting for ever.
        """
        sending = asyncio.timeout(None)
        try:
            async with sending:
                self._sending = sending
                self._call.add_done_callback(self._ended)
                yield
        except TimeoutError:
            if not sending.expired():
                raise
        finally:
            self._sending = None

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
