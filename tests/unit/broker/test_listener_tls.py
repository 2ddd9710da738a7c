"""TLS of Kafka listeners under both event loops: files are replaced while the server goes on."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from aquifer_broker.protocol.tls import ListenerTls
from aquifer_core.errors import InvalidConfigurationError
from cryptography.hazmat.primitives import serialization
from fixtures.tls_authority import Authority, Pair, TlsFolder

FORMER, NEXT = Authority("former"), Authority("next")
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Files:
    """The key store and trust store of a listener."""

    def __init__(self, root: Path) -> None:
        self._folder = TlsFolder(root)
        self.keystore = root / "broker.pem"
        self.truststore = self._folder.ca_file
        self.values: dict[str, str] = {"ssl.keystore.location": str(self.keystore)}

    def show(self, pair: Pair) -> None:
        self._folder.replace(self.keystore, pair.key + pair.certificate)

    def trust(self, *authorities: Authority) -> None:
        self._folder.replace(self.truststore, b"".join(each.certificate for each in authorities))

    def ask_for_certificates(self, *authorities: Authority) -> None:
        self.trust(*authorities)
        self.values["ssl.truststore.location"] = str(self.truststore)
        self.values["ssl.client.auth"] = "required"

    def tls(self) -> ListenerTls:
        return ListenerTls(self.values.get)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path)
    made.show(FORMER.issue())
    return made


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Run a coroutine in one kind of event loop."""

    def running(coroutine: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(coroutine)

    return running


def client(
    authority: Authority, folder: Path | None = None, issuer: Authority = FORMER
) -> ssl.SSLContext:
    """A client that trusts one authority; with a folder it shows a certificate."""
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    if folder is not None:
        own = TlsFolder(folder).write(authority, pair=issuer.issue("client"))
        context.load_cert_chain(own.certificate_file, own.key_file)
    return context


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(100):
            writer.write(data)
    except OSError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def served(tls: ListenerTls) -> AsyncIterator[int]:
    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=tls.context)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def is_let_in(port: int, context: ssl.SSLContext) -> bool:
    """Whether a new connection is made and carries data."""
    try:
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            writer.write(b"x")
            answer = await reader.read(1)
    except OSError:
        return False
    writer.close()
    return answer == b"x"


def test_new_connections_get_the_new_certificate_and_old_ones_go_on(
    files: Files, run: Callable[..., None]
) -> None:
    async def scene() -> None:
        tls = files.tls()
        async with served(tls) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client(FORMER))
            files.show(NEXT.issue())
            assert await is_let_in(port, client(FORMER))
            await tls.look()
            assert await is_let_in(port, client(NEXT))
            assert not await is_let_in(port, client(FORMER))
            async with asyncio.timeout(60):
                writer.write(b"y")
                assert await reader.read(1) == b"y"
            writer.close()

    run(scene())


def test_an_authority_of_clients_is_added_and_taken_out(
    files: Files, run: Callable[..., None], tmp_path: Path
) -> None:
    files.ask_for_certificates(FORMER)
    former = client(FORMER, tmp_path / "former")
    fresh = client(FORMER, tmp_path / "fresh", issuer=NEXT)

    async def who_is_let_in(port: int) -> tuple[bool, bool, bool]:
        return (
            await is_let_in(port, former),
            await is_let_in(port, fresh),
            await is_let_in(port, client(FORMER)),
        )

    async def scene() -> None:
        tls = files.tls()
        async with served(tls) as port:
            assert await who_is_let_in(port) == (True, False, False)
            files.trust(FORMER, NEXT)
            await tls.look()
            assert await who_is_let_in(port) == (True, True, False)
            files.trust(NEXT)
            await tls.look()
            assert await who_is_let_in(port) == (False, True, False)

    run(scene())


@pytest.mark.parametrize("damage", ["half", "other key", "gone"])
def test_files_that_do_not_fit_leave_the_former_ones_in_use(
    files: Files, run: Callable[..., None], damage: str
) -> None:
    whole = NEXT.issue()

    async def scene() -> None:
        tls = files.tls()
        async with served(tls) as port:
            if damage == "half":
                files.keystore.write_bytes((whole.key + whole.certificate)[:-200])
            elif damage == "other key":
                files.show(Pair(whole.certificate, FORMER.issue().key))
            else:
                files.keystore.unlink()
            await tls.look()
            assert await is_let_in(port, client(FORMER))
            files.show(whole)
            await tls.look()
            assert await is_let_in(port, client(NEXT))

    run(scene())


def test_a_key_with_a_password_is_replaced_as_well(files: Files, run: Callable[..., None]) -> None:
    files.show(_locked(FORMER.issue()))
    files.values["ssl.key.password"] = "secret"

    async def scene() -> None:
        tls = files.tls()
        async with served(tls) as port:
            files.show(_locked(NEXT.issue()))
            await tls.look()
            assert await is_let_in(port, client(NEXT))

    run(scene())


def test_a_key_whose_password_is_not_given_is_refused_without_asking_for_it(files: Files) -> None:
    files.show(_locked(FORMER.issue()))
    with pytest.raises(InvalidConfigurationError, match="without a password"):
        files.tls()


@pytest.mark.parametrize("asked", ["requested", "required"])
def test_asking_for_certificates_that_nobody_could_show_is_refused(
    files: Files, asked: str
) -> None:
    files.values["ssl.client.auth"] = asked
    with pytest.raises(InvalidConfigurationError, match=r"ssl\.truststore\.location is missing"):
        files.tls()


def _locked(pair: Pair) -> Pair:
    key = serialization.load_pem_private_key(pair.key, None)
    return Pair(
        pair.certificate,
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        ),
    )
