"""Readiness: dependencies are probed all the time and the health service says what came out."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import structlog
from grpc_health.v1 import health, health_pb2
from opentelemetry import metrics

from aquifer_rpc import semconv

logger = structlog.get_logger(__name__)

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
_UP: Final = metrics.get_meter("aquifer_rpc").create_gauge(
    semconv.PROBE_UP.name, unit=semconv.PROBE_UP.unit, description=semconv.PROBE_UP.doc
)

Probe = Callable[[], Awaitable[None]]


class Readiness:
    """SERVING while every probe succeeds; NOT_SERVING at first, after a failure, and for good once drained.

    The overall status (empty name) and that of every service move together: a service that lacks one dependency is not
    ready for any of its RPCs.
    """

    def __init__(self, probes: Mapping[str, Probe], *, probe_deadline_s: float) -> None:
        self.servicer = health.aio.HealthServicer()
        self.ready = False
        self._probes = dict(probes)
        self._deadline_s = probe_deadline_s
        self._names: tuple[str, ...] = ("",)
        self._up: dict[str, bool] = {}

    async def begin(self, service_names: Iterable[str]) -> None:
        """Announces the services as NOT_SERVING."""
        self._names = ("", *service_names)
        await self._announce(False)

    async def probe(self) -> None:
        """Asks every dependency once, all at the same time, and announces the result. Never raises."""
        results = await asyncio.gather(*(self._ask(name) for name in self._probes))
        await self._announce(all(results))

    async def drain(self) -> None:
        """NOT_SERVING from now on."""
        self.ready = False
        await self.servicer.enter_graceful_shutdown()

    async def _announce(self, ready: bool) -> None:
        if ready is not self.ready:
            logger.info("readiness_changed", ready=ready)
        self.ready = ready
        for name in self._names:
            await self.servicer.set(name, _SERVING if ready else _NOT_SERVING)

    async def _ask(self, name: str) -> bool:
        error: Exception | None = None
        try:
            async with asyncio.timeout(self._deadline_s):
                await self._probes[name]()
        except Exception as failure:
            error = failure
        up = error is None
        _UP.set(int(up), {semconv.PROBE.key: name})
        if self._up.get(name) is not up:
            self._up[name] = up
            self._log(name, error)
        return up

    def _log(self, name: str, error: Exception | None) -> None:
        if error is None:
            logger.info("probe_succeeded", probe=name)
        else:
            logger.warning("probe_failed", probe=name, error=repr(error))
