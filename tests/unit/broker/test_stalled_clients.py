"""Clients that stop in the middle of a request, as a machine without power does."""

import asyncio
import struct
from contextlib import AsyncExitStack, suppress

from aquifer_broker.protocol.budget import RequestBudget
from aquifer_broker.protocol.client import Client, Reply
from aquifer_broker.protocol.server import KafkaServer
from fixtures.polling import eventually

ANSWER = b"\0\0\0\2ok"
BUDGET_BYTES = 300_000


async def answer(frame: memoryview, client: Client) -> Reply | None:
    return Reply([ANSWER])


async def test_who_stops_in_the_middle_of_a_request_does_not_hold_up_the_others() -> None:
    """A few hundred producers that lost their network kept the whole budget, and all others waiting, for ten minutes."""
    budget = RequestBudget(BUDGET_BYTES)
    server = KafkaServer(
        answer,
        listener="PLAINTEXT",
        host="127.0.0.1",
        port=0,
        max_request_bytes=BUDGET_BYTES,
        request_budget=budget,
        max_stall_s=0.0,
    )
    async with server, AsyncExitStack() as stack:

        async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            stack.callback(writer.close)
            return reader, writer

        stalled, to_stalled = await connect()
        to_stalled.write(struct.pack(">i", 250_000) + bytes(1000))
        await eventually(lambda: budget.used_bytes == 250_000)
        await server.close_idle()
        assert server.connection_count == 1

        reader, writer = await connect()
        writer.write(struct.pack(">i", 200_000) + bytes(200_000))
        await eventually(lambda: budget.is_waited_for)
        await server.close_idle()
        async with asyncio.timeout(60):
            assert await reader.readexactly(len(ANSWER)) == ANSWER
            with suppress(ConnectionResetError):
                assert await stalled.read() == b""
        await eventually(lambda: budget.used_bytes == 0)
        assert server.connection_count == 1
