"""Keeps this broker registered and its view of the cluster current."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import Any, Final, Self, cast

import structlog
from aquifer_core.errors import (
    AquiferError,
    ErrorReason,
    PreconditionError,
    RemoteResourceNotFoundError,
)
from aquifer_rpc.supervised import SupervisedLoop

from aquifer_broker.cluster.ports import ClusterMetadata, Lease
from aquifer_broker.cluster.view import BrokerInfo, ClusterView

__all__ = ["BrokerLease", "ClusterWatch"]

logger = structlog.get_logger(__name__)

_ROUND_S: Final = 60.0
_SILENCE_S: Final = 15.0
_LEASE_SHARE: Final = 3
_UNREGISTER_S: Final = 2.0


class ClusterWatch:
    """Feeds a `ClusterView`; an async context manager that is entered once the first snapshot has come."""

    def __init__(self, metadata: ClusterMetadata, view: ClusterView) -> None:
        self._metadata = metadata
        self._view = view
        # The pause after a failure stays short: what is not seen here is not led here.
        self.loop = SupervisedLoop("cluster watch", self._follow, interval_s=0.0, backoff_max_s=1.0)
        self._running = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as starting:
            await starting.enter_async_context(self.loop)
            while not await self._view.wait_until(lambda: self._view.version > 0, _SILENCE_S):
                logger.warning(
                    "waiting_for_metadata", since_s=round(self.loop.seconds_since_success())
                )
            self._running = starting.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._running.aclose()

    async def _follow(self) -> None:
        """Follows one stream for a while. A round that ends well counts as a success, and the next resumes there; after a
        failure the first message ends it, so that the recovery shows.
        """
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + _ROUND_S
        # Every implementation is an async generator, which has to be closed in time.
        stream = cast(Any, self._metadata.watch(self._view.version))
        async with aclosing(stream), asyncio.timeout(_SILENCE_S) as silence:
            async for update in stream:
                self._view.apply(update)
                if loop.time() >= ends_s or self.loop.failures_in_a_row:
                    return
                silence.reschedule(loop.time() + _SILENCE_S)


class BrokerLease:
    """This broker's registration, renewed while the context is open and ended when it is left.

    `on_registered` is called with the epoch of each registration, `on_superseded` when another incarnation has this broker's id: the
    process must stop serving.
    """

    def __init__(
        self,
        metadata: ClusterMetadata,
        broker: BrokerInfo,
        *,
        on_registered: Callable[[int], None],
        on_superseded: Callable[[], None],
    ) -> None:
        self._metadata = metadata
        self._broker = broker
        self._on_registered = on_registered
        self._on_superseded = on_superseded
        self._lease: Lease | None = None
        self._is_lost = False
        self._running = AsyncExitStack()

    @property
    def broker_epoch(self) -> int:
        """Epoch of the registration."""
        return self._broker.broker_epoch

    async def __aenter__(self) -> Self:
        """Registers, however long the metadata service takes to answer."""
        pause_s = 0.1
        while self._lease is None:
            try:
                self._lease = await self._register()
            except AquiferError as error:
                logger.warning("not_registered", error=str(error), retry_in_s=pause_s)
                await asyncio.sleep(pause_s)
                pause_s = min(2.0, pause_s * 2)
        loop = SupervisedLoop(
            "broker lease",
            self._renew,
            interval_s=self._lease.lease_ms / 1000 / _LEASE_SHARE,
            backoff_max_s=1.0,
        )
        await self._running.enter_async_context(loop)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._running.aclose()
        if self._lease is None:
            return
        try:
            async with asyncio.timeout(_UNREGISTER_S):
                await self._metadata.unregister_broker(
                    self._broker.broker_id, self._lease.broker_epoch
                )
        except (AquiferError, TimeoutError) as error:
            logger.warning("not_unregistered", error=str(error))

    async def _register(self) -> Lease:
        lease = await self._metadata.register_broker(self._broker)
        self._broker = replace(self._broker, broker_epoch=lease.broker_epoch)
        self._on_registered(lease.broker_epoch)
        logger.info("broker_registered", broker_epoch=lease.broker_epoch, lease_ms=lease.lease_ms)
        return lease

    async def _renew(self) -> None:
        assert self._lease is not None
        try:
            if not self._is_lost and await self._is_renewed(self._lease):
                return
            # As long as it has no answer it may have happened: the epoch of before would be taken for that of a broker replaced.
            self._is_lost = True
            self._lease = await self._register()
            self._is_lost = False
        except PreconditionError as error:
            if error.reason is ErrorReason.STALE_BROKER_EPOCH:
                logger.critical("broker_superseded", error=str(error))
                self._on_superseded()
            raise

    async def _is_renewed(self, lease: Lease) -> bool:
        try:
            await self._metadata.heartbeat(self._broker.broker_id, lease.broker_epoch)
        except RemoteResourceNotFoundError:
            logger.warning("lease_lost")
            return False
        return True
