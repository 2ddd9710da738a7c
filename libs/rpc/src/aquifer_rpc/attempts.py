"""The attempts of one call: which address, how much time, whether again."""

import asyncio
import time
from dataclasses import dataclass
from typing import Final, NoReturn

import grpc.aio
from aquifer_core.errors import AquiferError, DeadlineExceededError, ErrorReason

from aquifer_rpc.call_record import CallRecord
from aquifer_rpc.endpoints import Endpoint, Endpoints
from aquifer_rpc.errors import from_cancellation, from_rpc_error
from aquifer_rpc.retry import RetryPolicy

# What a call of grpc.aio fails with; UsageError and InvalidStateError come when its channel is closed or its RPC over.
CALL_FAILURES: Final = (
    grpc.aio.AioRpcError,
    grpc.aio.UsageError,
    asyncio.InvalidStateError,
    asyncio.CancelledError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """How one call is made.

    Attributes:
        deadline_s: for all attempts together; None only for streams without end.
        retry: whether a failed attempt may be repeated.
        affinity: calls with the same key go to the same endpoint while it answers; None: any.
    """

    deadline_s: float | None
    retry: bool = True
    affinity: bytes | None = None


class Attempts:
    """Hands out endpoints one after the other until the call succeeds or cannot be repeated."""

    def __init__(
        self, endpoints: Endpoints, policy: RetryPolicy, options: CallOptions, record: CallRecord
    ) -> None:
        self._endpoints = endpoints
        self._policy = policy
        self._options = options
        self._record = record
        self._ends_s = None if options.deadline_s is None else time.monotonic() + options.deadline_s
        self._attempt = 0
        self._queue: list[Endpoint] = []

    def next(self) -> tuple[Endpoint, float | None]:
        """The endpoint to ask now, and the time left.

        Raises:
            DeadlineExceededError: no time is left.
        """
        self._attempt += 1
        if not self._queue:
            self._queue = self._endpoints.order(self._options.affinity)
        endpoint = self._queue.pop(0)
        remaining_s = self._remaining_s()
        if remaining_s is not None and remaining_s <= 0:
            raise DeadlineExceededError(f"no time was left to call {endpoint.target}")
        self._record.attempting(endpoint.target)
        return endpoint, remaining_s

    def succeeded(self, endpoint: Endpoint) -> None:
        """Notes that the endpoint answered."""
        self._endpoints.mark_up(endpoint)

    async def failed(self, endpoint: Endpoint, error: BaseException) -> None:
        """Waits until the next attempt, or raises what the call fails with."""
        decoded = self.decode(endpoint, error)
        pause_s = self._policy.pause_s(decoded, self._attempt) if self._options.retry else None
        remaining_s = self._remaining_s()
        if pause_s is not None and self._queue and decoded.reason is ErrorReason.PEER_UNAVAILABLE:
            pause_s = 0.0
        if pause_s is None or (remaining_s is not None and pause_s >= remaining_s):
            raise decoded from error
        self._record.retrying(decoded, self._attempt, pause_s)
        await asyncio.sleep(pause_s)

    def give_up(self, endpoint: Endpoint, error: BaseException) -> NoReturn:
        """Raises what the call fails with."""
        raise self.decode(endpoint, error) from error

    def decode(self, endpoint: Endpoint, error: BaseException) -> AquiferError:
        """The domain error of a failed attempt; marks the endpoint down when it did not answer.

        Raises:
            asyncio.CancelledError: our own task was cancelled.
        """
        if isinstance(error, grpc.aio.AioRpcError):
            decoded = from_rpc_error(error)
        else:
            cut = from_cancellation(error)
            if not isinstance(cut, AquiferError):
                raise cut
            decoded = cut
        if decoded.reason in (ErrorReason.PEER_UNAVAILABLE, ErrorReason.NOT_READY):
            self._endpoints.mark_down(endpoint)
        return decoded

    def _remaining_s(self) -> float | None:
        return None if self._ends_s is None else self._ends_s - time.monotonic()
