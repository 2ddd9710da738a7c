"""The listeners of a broker, what looks after them, and where clients are told that they are."""

import asyncio
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final

from aquifer_rpc.supervised import SupervisedLoop

from aquifer_broker.cluster.view import Endpoint
from aquifer_broker.config.broker_config import BrokerConfig
from aquifer_broker.protocol.budget import RequestBudget
from aquifer_broker.protocol.server import Dispatch, KafkaServer
from aquifer_broker.protocol.tls import ListenerTls

__all__ = ["endpoints_told", "listen"]

_REAPER_INTERVAL_S: Final = 10.0


async def listen(
    starting: AsyncExitStack, dispatch: Dispatch, config: BrokerConfig, tls: ListenerTls | None
) -> dict[str, KafkaServer]:
    """Opens every listener, by name; `starting` closes them. `tls` is there when one of them is of SSL."""
    if tls is not None:
        await starting.enter_async_context(
            SupervisedLoop("TLS files of listeners", tls.look, interval_s=tls.interval_s)
        )
    budget = RequestBudget(config.queued_request_bytes)
    max_idle_s = config.connections_max_idle_ms / 1000
    servers: dict[str, KafkaServer] = {}
    for listener in config.listeners:
        is_secure = config.security_protocols[listener.name] == "SSL"
        server = KafkaServer(
            dispatch,
            listener=listener.name,
            host=listener.host or "0.0.0.0",
            port=listener.port,
            max_request_bytes=config.max_request_bytes,
            request_budget=budget,
            max_idle_s=max_idle_s,
            max_connections=config.max_connections,
            ssl_context=tls.context if tls is not None and is_secure else None,
        )
        servers[listener.name] = await starting.enter_async_context(server)
        reaper = SupervisedLoop(
            f"idle connections {listener.name}",
            server.close_idle,
            interval_s=min(_REAPER_INTERVAL_S, max_idle_s),
        )
        await starting.enter_async_context(reaper)
    return servers


async def endpoints_told(config: BrokerConfig, ports: Mapping[str, int]) -> tuple[Endpoint, ...]:
    """Where clients are told that the listeners are.

    One on all interfaces is at this machine's name, as Kafka has it: told of `localhost`, clients elsewhere would connect to themselves.
    `ports` are the bound ones by name of the listener.
    """
    own_name = ""
    if any(not each.host for each in config.advertised_listeners):
        own_name = await asyncio.to_thread(socket.getfqdn)
    return tuple(
        Endpoint(listener=each.name, host=each.host or own_name, port=each.port or ports[each.name])
        for each in config.advertised_listeners
    )
