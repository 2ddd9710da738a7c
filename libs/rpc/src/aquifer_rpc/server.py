"""The life of a gRPC server: starts unready, probes its dependencies, serves, drains on a signal, stops."""

import asyncio
import signal
from collections.abc import Callable, Collection, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self, TypeVar, cast

import grpc
import grpc.aio
import structlog
from aquifer_core.errors import InvalidConfigurationError
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from aquifer_rpc.credentials import server_credentials
from aquifer_rpc.flow_control import window_options
from aquifer_rpc.health import Probe, Readiness
from aquifer_rpc.served_methods import Decoder, ServedMethods
from aquifer_rpc.settings import GrpcServerSettings
from aquifer_rpc.supervised import SupervisedLoop
from aquifer_rpc.tls_files import TlsFiles, server_files

logger = structlog.get_logger(__name__)

_BUILT_IN_ENDLESS: Final = frozenset(
    {
        "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    }
)
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

ServicerT = TypeVar("ServicerT")


class GrpcServer:
    """A server with health, reflection, deadlines, error codec, telemetry and draining.

    Use::

        server = GrpcServer(settings.grpc, name="storage", probes={"object store": store.ping})
        server.add(add_RemoteStorageServiceServicer_to_server, RemoteStorageServicer(manager))
        async with server:
            await server.run_until_signal()
    """

    def __init__(
        self,
        settings: GrpcServerSettings,
        *,
        name: str,
        probes: Mapping[str, Probe] | None = None,
        endless_methods: Collection[str] = (),
        decoders: Mapping[str, Decoder] | None = None,
    ) -> None:
        """Prepares a server; nothing is bound yet.

        Args:
            settings: where and how to listen.
            name: of the process, for the log.
            probes: dependency name -> raises when the dependency is not usable; without any the server is ready at once.
            endless_methods: full names ("/aquifer.metadata.v1.RemoteLogMetadataService/WatchPartition") of streams that have
                no end; only these run without a deadline.
            decoders: full names of methods whose requests protobuf is not to decode -> what does.
        """
        self.port = 0
        self._settings = settings
        self._name = name
        self._methods = ServedMethods(
            settings,
            endless_methods=_BUILT_IN_ENDLESS | frozenset(endless_methods),
            decoders=decoders or {},
        )
        self._readiness = Readiness(probes or {}, probe_deadline_s=settings.probe_deadline_s)
        self._tls_files: TlsFiles | None = None
        self._server: grpc.aio.Server | None = None
        self._stack = AsyncExitStack()

    def add(
        self, add_to_server: Callable[[ServicerT, grpc.aio.Server], None], servicer: ServicerT
    ) -> None:
        """Registers a servicer with the generated `add_XServicer_to_server`. Before the server starts."""
        add_to_server(servicer, cast(grpc.aio.Server, self._methods))

    @property
    def ready(self) -> bool:
        """Whether every probe succeeded last time and the server is not draining."""
        return self._readiness.ready

    async def __aenter__(self) -> Self:
        names = tuple(self._methods.service_names)
        self._add_own(names)
        server = grpc.aio.server(
            handlers=(self._methods,),
            options=_options(self._settings),
            maximum_concurrent_rpcs=self._settings.max_concurrent_rpcs,
        )
        self.port = self._bind(server)
        await self._readiness.begin(names)
        await self._readiness.probe()
        await server.start()
        self._server = server
        await self._stack.enter_async_context(
            SupervisedLoop(
                f"{self._name} readiness",
                self._readiness.probe,
                interval_s=self._settings.probe_interval_s,
            )
        )
        await self._watch_tls_files()
        logger.info("server_started", server=self._name, port=self.port)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def stop(self, grace_s: float | None = None) -> None:
        """Drains and stops; idempotent.

        Health turns NOT_SERVING, watches end, new RPCs are refused, running ones may finish within the grace, the rest is
        cancelled.
        """
        server, self._server = self._server, None
        if server is None:
            return
        logger.info("server_draining", server=self._name)
        await self._stack.aclose()
        await self._readiness.drain()
        self._methods.end_watches()
        if grace_s is None:
            await asyncio.sleep(self._settings.drain_delay_s)
            grace_s = self._settings.drain_grace_s
        await server.stop(grace_s)
        logger.info("server_stopped", server=self._name)

    async def run_until_signal(self) -> None:
        """Serves until SIGTERM or SIGINT, then drains and stops. Starts the server when it is not started yet."""
        if self._server is None:
            async with self:
                await _signal_received()
        else:
            await _signal_received()
        await self.stop()

    def _add_own(self, names: tuple[str, ...]) -> None:
        """Health, and reflection of the services with these names."""
        added = cast(grpc.aio.Server, self._methods)
        health_pb2_grpc.add_HealthServicer_to_server(self._readiness.servicer, added)
        if self._settings.reflection:
            known = (*names, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection_pb2_grpc.add_ServerReflectionServicer_to_server(  # type: ignore[no-untyped-call]
                reflection.aio.ReflectionServicer(known), added
            )

    def _bind(self, server: grpc.aio.Server) -> int:
        listen = self._settings.listen
        if self._settings.tls is not None:
            self._tls_files = server_files(self._settings.tls)
        try:
            if self._tls_files is None:
                return server.add_insecure_port(listen)
            return server.add_secure_port(listen, server_credentials(self._tls_files))
        except RuntimeError as error:
            raise InvalidConfigurationError(
                f"cannot listen on {listen}: choose a free address of this host",
                metadata={"key": "grpc.listen"},
            ) from error

    async def _watch_tls_files(self) -> None:
        tls, files = self._settings.tls, self._tls_files
        if tls is None or files is None:
            return

        async def look() -> None:
            files.look()

        await self._stack.enter_async_context(
            SupervisedLoop(f"{self._name} TLS files", look, interval_s=tls.reload_interval_s)
        )


async def _signal_received() -> None:
    """Waits for SIGTERM or SIGINT; restores the handlers, so that a second one has its usual effect."""
    loop = asyncio.get_running_loop()
    received: asyncio.Future[signal.Signals] = loop.create_future()

    def note(number: signal.Signals) -> None:
        if not received.done():
            received.set_result(number)

    for number in _SIGNALS:
        loop.add_signal_handler(number, note, number)
    try:
        logger.info("signal_received", signal=(await received).name)
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def _options(settings: GrpcServerSettings) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", settings.max_message_bytes),
        *window_options(settings.stream_window_bytes),
        ("grpc.keepalive_time_ms", int(settings.keepalive_time_s * 1000)),
        ("grpc.keepalive_timeout_ms", int(settings.keepalive_timeout_s * 1000)),
        ("grpc.keepalive_permit_without_calls", 1),
        *_connection_age(settings),
        (
            "grpc.http2.min_recv_ping_interval_without_data_ms",
            int(settings.min_ping_interval_s * 1000),
        ),
        ("grpc.so_reuseport", int(settings.reuse_port)),
    ]


def _connection_age(settings: GrpcServerSettings) -> list[tuple[str, int]]:
    if settings.max_connection_s is None:
        return []
    return [("grpc.max_connection_age_ms", int(settings.max_connection_s * 1000))]
