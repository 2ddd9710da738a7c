"""The TCP proxy of the chaos tests does to connections what it says."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from fixtures.network import TcpProxy
from fixtures.polling import eventually

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        return
    finally:
        writer.close()


@pytest.fixture
async def proxy() -> AsyncIterator[TcpProxy]:
    server = await asyncio.start_server(_echo, "127.0.0.1", 0)
    async with server, TcpProxy(server.sockets[0].getsockname()[1]) as proxy:
        yield proxy


async def _connect(proxy: TcpProxy) -> Ends:
    return await asyncio.open_connection("127.0.0.1", proxy.port)


async def _ask(ends: Ends, data: bytes) -> bytes:
    reader, writer = ends
    writer.write(data)
    await writer.drain()
    async with asyncio.timeout(60):
        return await reader.readexactly(len(data))


async def test_bytes_and_the_end_of_a_stream_pass(proxy: TcpProxy) -> None:
    reader, writer = await _connect(proxy)
    data = bytes(range(256)) * 8_192
    assert await _ask((reader, writer), data) == data
    writer.write_eof()
    async with asyncio.timeout(60):
        assert await reader.read() == b""
    writer.close()
    await eventually(lambda: proxy.connections == 0)


async def test_a_paused_proxy_delivers_only_after_it_resumes(proxy: TcpProxy) -> None:
    ends = await _connect(proxy)
    assert await _ask(ends, b"before") == b"before"
    proxy.pause()
    answer = asyncio.create_task(_ask(ends, b"after"))
    done, _ = await asyncio.wait({answer}, timeout=0.2)
    assert not done
    proxy.resume()
    assert await answer == b"after"
    ends[1].close()


async def test_a_cut_resets_connections_and_new_ones_work(proxy: TcpProxy) -> None:
    ends = await _connect(proxy)
    assert await _ask(ends, b"before") == b"before"
    await proxy.cut()
    async with asyncio.timeout(60):
        with pytest.raises(ConnectionResetError):
            await ends[0].read()
    ends[1].close()
    again = await _connect(proxy)
    assert await _ask(again, b"again") == b"again"
    again[1].close()
    assert proxy.accepted == 2


async def test_a_refusing_proxy_takes_nobody_until_it_resumes(proxy: TcpProxy) -> None:
    ends = await _connect(proxy)
    assert await _ask(ends, b"before") == b"before"
    await proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        await _connect(proxy)
    with pytest.raises(ConnectionResetError):
        await ends[0].read()
    ends[1].close()
    proxy.resume()
    again = await _connect(proxy)
    assert await _ask(again, b"again") == b"again"
    again[1].close()


async def test_a_delay_holds_bytes_back_in_each_direction(proxy: TcpProxy) -> None:
    ends = await _connect(proxy)
    proxy.delay(100)
    loop = asyncio.get_running_loop()
    asked = loop.time()
    assert await _ask(ends, b"late") == b"late"
    assert loop.time() - asked >= 0.2
    ends[1].close()


async def test_a_limit_bounds_the_rate(proxy: TcpProxy) -> None:
    ends = await _connect(proxy)
    proxy.limit(1_000_000)
    loop = asyncio.get_running_loop()
    asked = loop.time()
    data = b"x" * 300_000
    assert await _ask(ends, data) == data
    assert loop.time() - asked >= 0.2
    ends[1].close()


async def test_a_dead_server_behind_the_proxy_resets_the_client() -> None:
    listener = await asyncio.start_server(_echo, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    listener.close()
    await listener.wait_closed()
    async with TcpProxy(port) as proxy:
        reader, writer = await _connect(proxy)
        async with asyncio.timeout(60):
            with pytest.raises(ConnectionResetError):
                await reader.read()
        writer.close()
