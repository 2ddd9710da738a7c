"""Listeners: TLS, several at once, limits of connections."""

import datetime
import ipaddress
import ssl
import struct
from pathlib import Path

import confluent_kafka
import pytest
from aquifer_broker.app import BrokerNode
from aquifer_broker.protocol.versions import ApiKey
from aquifer_core.errors import InvalidConfigurationError
from confluent_kafka.admin import AdminClient
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from fixtures.broker_logs import client_batch
from fixtures.broker_node import StartBroker
from fixtures.kafka_clients import consume, in_thread, produce
from fixtures.kafka_wire import KafkaWire
from fixtures.polling import eventually
from fixtures.wire_topic import WireTopic
from structlog.testing import capture_logs

VALUES = [bytes(100_000), b"small", *(str(number).encode() for number in range(500))]


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A PEM file with a key and a certificate for the loopback."""
    return write_certificate(tmp_path / "broker.pem")


def write_certificate(path: Path) -> Path:
    """Puts a fresh key with a certificate that it signed itself into the place of a file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(key, hashes.SHA256())
    )
    fresh = path.with_suffix(".fresh")
    fresh.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return fresh.replace(path)


async def test_clients_come_over_tls_and_in_plain_text_at_once(
    start_broker: StartBroker, certificate: Path
) -> None:
    node: BrokerNode = await start_broker(
        1,
        listeners="SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        ssl_keystore_location=str(certificate),
    )
    secure = f"127.0.0.1:{node.port('SSL')}"
    tls = {"security_protocol": "ssl", "ssl_ca_location": str(certificate)}
    await in_thread(lambda: produce(secure, "t", VALUES, **tls))
    read = await in_thread(lambda: consume(secure, "t", len(VALUES), **tls))
    assert [each.value() for each in read] == VALUES

    def ports(address: str, **settings: str) -> set[int]:
        admin = AdminClient({"bootstrap.servers": address, **settings})
        return {broker.port for broker in admin.list_topics(timeout=60).brokers.values()}

    plain = f"127.0.0.1:{node.port('PLAINTEXT')}"
    assert await in_thread(ports, plain) == {node.port("PLAINTEXT")}
    dotted = {key.replace("_", "."): value for key, value in tls.items()}
    assert await in_thread(lambda: ports(secure, **dotted)) == {node.port("SSL")}


async def test_a_renewed_certificate_is_shown_without_a_restart(
    start_broker: StartBroker, certificate: Path
) -> None:
    node = await start_broker(
        1, listeners="SSL://127.0.0.1:0", ssl_keystore_location=str(certificate)
    )
    port = node.port("SSL")
    trusting = ssl.create_default_context(cafile=certificate)
    async with KafkaWire(port, tls=trusting) as wire:
        topic = await WireTopic.create(wire)
        write_certificate(certificate)
        renewed = ssl.create_default_context(cafile=certificate)

        async def shown() -> bool:
            async with KafkaWire(port, tls=renewed):
                return True

        await eventually(shown, interval_s=0.2)
        assert (await topic.produce(client_batch())).base_offset == 0
    tls = {"security_protocol": "ssl", "ssl_ca_location": str(certificate)}
    assert await in_thread(lambda: produce(f"127.0.0.1:{port}", "t", [b"v"], **tls)) == [1]


async def test_a_client_without_tls_is_turned_away_and_the_broker_goes_on(
    start_broker: StartBroker, certificate: Path
) -> None:
    node = await start_broker(
        1, listeners="SSL://127.0.0.1:0", ssl_keystore_location=str(certificate)
    )
    address = f"127.0.0.1:{node.port('SSL')}"

    def list_topics() -> None:
        AdminClient({"bootstrap.servers": address}).list_topics(timeout=1)

    with pytest.raises(confluent_kafka.KafkaException):
        await in_thread(list_topics)
    tls = {"security_protocol": "ssl", "ssl_ca_location": str(certificate)}
    assert await in_thread(lambda: produce(address, "t", [b"v"], **tls)) == [0]


async def test_a_tls_listener_without_a_certificate_is_refused(start_broker: StartBroker) -> None:
    with pytest.raises(InvalidConfigurationError, match=r"ssl\.keystore\.location is missing"):
        await start_broker(1, listeners="SSL://127.0.0.1:0")
    with pytest.raises(InvalidConfigurationError, match="cannot be used"):
        await start_broker(1, listeners="SSL://127.0.0.1:0", ssl_keystore_location="/none")


async def test_connections_over_the_limit_are_closed(start_broker: StartBroker) -> None:
    node = await start_broker(1, max_connections="2")
    port = node.port("PLAINTEXT")
    with capture_logs() as logged:
        async with KafkaWire(port), KafkaWire(port):
            await eventually(lambda: node.servers["PLAINTEXT"].connection_count == 2)
            for _ in range(2):
                async with KafkaWire(port) as third:
                    with pytest.raises((EOFError, ConnectionError)):
                        await third.receive_bytes()
    refused = [each for each in logged if each["event"] == "connections_refused"]
    assert [(each["listener"], each["max_connections"]) for each in refused] == [("PLAINTEXT", 2)]


async def test_an_idle_connection_is_closed(start_broker: StartBroker) -> None:
    node = await start_broker(1, connections_max_idle_ms="100")
    async with KafkaWire(node.port("PLAINTEXT")) as wire:
        with pytest.raises((EOFError, ConnectionError)):
            await wire.receive_bytes()


async def test_a_request_over_the_limit_closes_its_connection_only(
    start_broker: StartBroker,
) -> None:
    node = await start_broker(1, socket_request_max_bytes="1000")
    port = node.port("PLAINTEXT")
    async with KafkaWire(port) as wire:
        await wire.send_bytes(bytes(1001))
        with pytest.raises((EOFError, ConnectionError)):
            await wire.receive_bytes()
    admin = {"bootstrap.servers": f"127.0.0.1:{port}"}
    assert await in_thread(lambda: AdminClient(admin).list_topics(timeout=60).brokers)


async def test_a_request_that_announces_more_than_it_has_closes_its_connection_only(
    start_broker: StartBroker,
) -> None:
    node = await start_broker(1)
    port = node.port("PLAINTEXT")
    async with KafkaWire(port) as wire, KafkaWire(port) as other:
        topic = await WireTopic.create(other)
        await wire.send_bytes(
            struct.pack(">hhih", ApiKey.METADATA, 12, 7, -1) + b"\0\xff\xff\xff\xff\x0f"
        )
        with pytest.raises((EOFError, ConnectionError)):
            await wire.receive_bytes()
        assert (await topic.produce(client_batch())).base_offset == 0
