"""The client side of a connection: one or several addresses behind one channel for stubs."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import grpc
import grpc.aio

from aquifer_rpc.calls import Method
from aquifer_rpc.endpoints import Endpoint, Endpoints
from aquifer_rpc.flow_control import window_options
from aquifer_rpc.renewed_channel import RenewedChannel
from aquifer_rpc.retry import RetryPolicy
from aquifer_rpc.settings import GrpcClientSettings
from aquifer_rpc.tls_files import client_files

_ROUND_ROBIN: Final = '{"loadBalancingConfig": [{"round_robin": {}}]}'
_CONNECTED_S: Final = 3.0


def connect(
    target: str | Sequence[str], *, settings: GrpcClientSettings | None = None
) -> "Channel":
    """A channel to one address, or to several replicas of one service.

    Nothing is connected before the first call. Close it, or use it as an async context manager.

    Args:
        target: `host:port`, several of them separated by commas, or a list.
        settings: None takes the defaults.

    Raises:
        InvalidConfigurationError: a TLS file cannot be read, or the files do not fit together.
    """
    texts = target.split(",") if isinstance(target, str) else target
    targets = list(dict.fromkeys(text.strip() for text in texts if text.strip()))
    return Channel(targets, settings or GrpcClientSettings())


class Channel(grpc.aio.Channel):
    """A channel whose stubs have deadlines, retries, traces and the errors of `aquifer_core`.

    Use::

        async with connect("127.0.0.1:7100") as channel:
            stub = RemoteStorageServiceStub(channel)
            answer = await call_unary(stub.DescribeSegment, request, deadline_s=5)
            async with aclosing(call_stream(stub.FetchIndex, request)) as pieces:
                async for piece in pieces: ...
    """

    def __init__(self, targets: Sequence[str], settings: GrpcClientSettings) -> None:
        self._settings = settings
        self._members = [
            Endpoint(target=target, channel=_raw_channel(target, settings)) for target in targets
        ]
        self._endpoints = Endpoints(self._members, down_s=settings.down_s)
        self._policy = RetryPolicy.of(settings)

    async def __aenter__(self) -> "Channel":
        return self

    async def __aexit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Closes every connection; calls under way fail with `UnavailableError` after the grace."""
        await asyncio.gather(*(member.channel.close(grace) for member in self._members))

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """State of the first address."""
        return self._members[0].channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Waits for the first address."""
        await self._members[0].channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Waits until one of the addresses is connected; give it a deadline."""
        waits = [asyncio.create_task(member.channel.channel_ready()) for member in self._members]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.wait(waits)

    async def until_connected(self) -> None:
        """Waits for a connection, 3 s at most; for calls that may be made only once.

        One that is made while the channel pauses between two attempts to connect fails though the server may be back.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_CONNECTED_S):
                await self.channel_ready()

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Called by generated stubs."""
        return self._method("unary_unary", method, args, kwargs)

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Called by generated stubs."""
        return self._method("unary_stream", method, args, kwargs)

    def stream_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Called by generated stubs."""
        return self._method("stream_unary", method, args, kwargs)

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Nothing of ours streams both ways."""
        raise TypeError(f"{method} streams both ways, for which there are no deadlines and errors")

    def _method(
        self, shape: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Method:
        request, _, response = shape.partition("_")
        return Method(
            name=method,
            inner={
                member.target: getattr(member.channel, shape)(method, *args, **kwargs)
                for member in self._members
            },
            endpoints=self._endpoints,
            policy=self._policy,
            default_deadline_s=self._settings.deadline_s,
            request_streaming=request == "stream",
            response_streaming=response == "stream",
        )


def _raw_channel(target: str, settings: GrpcClientSettings) -> grpc.aio.Channel:
    options = _options(settings)
    if settings.tls is None:
        return grpc.aio.insecure_channel(target, options=options)
    return RenewedChannel(
        lambda credentials: grpc.aio.secure_channel(target, credentials, options=options),
        client_files(settings.tls),
    )


def _options(settings: GrpcClientSettings) -> list[tuple[str, Any]]:
    options: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", settings.max_message_bytes),
        *window_options(settings.stream_window_bytes),
        ("grpc.keepalive_time_ms", int(settings.keepalive_time_s * 1000)),
        ("grpc.keepalive_timeout_ms", int(settings.keepalive_timeout_s * 1000)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # gRPC's name for the time a connection attempt may take.
        ("grpc.min_reconnect_backoff_ms", int(settings.connect_timeout_s * 1000)),
        ("grpc.initial_reconnect_backoff_ms", int(settings.reconnect_backoff_min_s * 1000)),
        ("grpc.max_reconnect_backoff_ms", int(settings.reconnect_backoff_max_s * 1000)),
        # Retries at two levels multiply; ours know RetryInfo.
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", int(settings.private_connection)),
    ]
    if settings.round_robin:
        options.append(("grpc.service_config", _ROUND_ROBIN))
    if settings.tls is not None and settings.tls.server_name is not None:
        options.append(("grpc.ssl_target_name_override", settings.tls.server_name))
    return options
