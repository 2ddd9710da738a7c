"""Whether somebody listens where a broker says that it does."""

import asyncio

from aquifer_admin.commands.status import connect_error


async def test_a_host_that_does_not_answer_in_time_is_told_with_the_time() -> None:
    """TimeoutError is an OSError, without a text."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        error = await connect_error("127.0.0.1", port, timeout_s=0)
        assert error == f"127.0.0.1:{port}: no connection in 0 s"
        assert await connect_error("127.0.0.1", port, timeout_s=60) is None
