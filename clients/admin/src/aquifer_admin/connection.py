"""Connections to the three services: one deadline per call, and failures that say where they happened."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from enum import StrEnum
from typing import Self, TypeVar

import grpc.aio
from aquifer_core.errors import AquiferError, ErrorReason
from aquifer_rpc.calls import call_stream, call_unary
from aquifer_rpc.channel import Channel, connect
from aquifer_rpc.settings import GrpcClientSettings, TlsClientSettings

__all__ = ["ConnectionOptions", "Peer", "Role", "Session", "cause"]

Req = TypeVar("Req")
Res = TypeVar("Res")


class Role(StrEnum):
    """A service of the suite."""

    METADATA = "metadata"
    MANAGER = "manager"
    STORAGE = "storage"

    @property
    def option(self) -> str:
        """Command line option with its addresses."""
        return f"--{self.value}"

    @property
    def variable(self) -> str:
        """Environment variable with its addresses."""
        return f"AQUIFER_ADMIN_{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Where the services are, each `host:port` of one or several replicas, and how long a call may take."""

    metadata: tuple[str, ...]
    manager: tuple[str, ...]
    storage: tuple[str, ...]
    timeout_s: float
    tls: TlsClientSettings | None = None

    def addresses(self, role: Role) -> tuple[str, ...]:
        """Replicas of a service."""
        return {
            Role.METADATA: self.metadata,
            Role.MANAGER: self.manager,
            Role.STORAGE: self.storage,
        }[role]


class Peer:
    """One service behind one or several addresses, or a broker's log service when it has no role."""

    def __init__(
        self, role: Role | None, addresses: Sequence[str], channel: Channel, timeout_s: float
    ) -> None:
        self.role = role
        self.name = role.value if role else "broker"
        self.address = ",".join(addresses)
        self.channel: grpc.aio.Channel = channel
        self._connection = channel
        self.timeout_s = timeout_s

    async def ask(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Req, Res],
        request: Req,
        *,
        timeout_s: float | None = None,
        once: bool = False,
    ) -> Res:
        """Calls a unary RPC.

        Args:
            method: of a stub.
            request: the message.
            timeout_s: the deadline; None: that of every call.
            once: never repeat it: a second try would meet what the first has done, and tell of nothing else.

        Raises:
            AquiferError: of the same class as the service's own, with the service and its address in the text.
        """
        try:
            if once:
                await self._connection.until_connected()
            return await call_unary(
                method, request, deadline_s=timeout_s or self.timeout_s, retry=not once
            )
        except AquiferError as error:
            raise self.located(error) from error

    async def read(
        self,
        method: grpc.aio.UnaryStreamMultiCallable[Req, Res],
        request: Req,
        *,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[Res, None]:
        """Calls a server-streaming RPC; the deadline holds for the whole stream.

        Raises:
            AquiferError: as `ask`.
        """
        deadline_s = timeout_s or self.timeout_s
        try:
            async with aclosing(call_stream(method, request, deadline_s=deadline_s)) as messages:
                async for message in messages:
                    yield message
        except AquiferError as error:
            raise self.located(error) from error

    def located(self, error: AquiferError) -> AquiferError:
        """The same error with service, address and remedy in its text."""
        text = cause(error)
        remedy = self._remedies().get(error.reason)
        where = f"{self.name} at {self.address}"
        return type(error)(
            f"{where}: {text}" + (f"; {remedy}" if remedy else ""),
            reason=error.reason,
            metadata=error.metadata,
            retry_after_ms=error.retry_after_ms,
        )

    def _remedies(self) -> dict[ErrorReason, str]:
        role = self.role
        place = f", or say where it is with {role.option} or {role.variable}" if role else ""
        return {
            ErrorReason.PEER_UNAVAILABLE: f"start it{place}",
            ErrorReason.DEADLINE_EXCEEDED: "ask for more time with --timeout",
            ErrorReason.NOT_READY: "it is starting or stopping; `aquifer status` says what it lacks",
            ErrorReason.CONCURRENT_UPDATE: "somebody changed the same thing; run the command again",
            ErrorReason.INTERNAL: "its log has the details",
        }


class Session:
    """Everything a command talks to; connects to what is used, when it is used."""

    def __init__(self, options: ConnectionOptions) -> None:
        self.options = options
        self._stack = AsyncExitStack()
        self._peers: dict[tuple[Role | None, tuple[str, ...]], Peer] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def peer(self, role: Role) -> Peer:
        """A service, any replica."""
        return self._peer(role, self.options.addresses(role))

    def replicas(self, role: Role) -> list[Peer]:
        """Each replica of a service on its own."""
        return [self._peer(role, (address,)) for address in self.options.addresses(role)]

    def broker(self, address: str) -> Peer:
        """The log service of a broker."""
        return self._peer(None, (address,))

    def _peer(self, role: Role | None, addresses: tuple[str, ...]) -> Peer:
        key = (role, addresses)
        if key not in self._peers:
            channel = connect(list(addresses), settings=self._client_settings())
            self._stack.push_async_callback(channel.close)
            self._peers[key] = Peer(role, addresses, channel, self.options.timeout_s)
        return self._peers[key]

    def _client_settings(self) -> GrpcClientSettings:
        return GrpcClientSettings(tls=self.options.tls, deadline_s=self.options.timeout_s)


def cause(error: AquiferError) -> str:
    """The text of an error in one line; of a failed connection only what the operating system said."""
    text = " ".join(error.message.split())
    if error.reason is not ErrorReason.PEER_UNAVAILABLE:
        return text
    return f"does not answer ({text.rsplit(': ', 1)[-1]})"
