"""TLS among a broker, its manager and the metadata service."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aquifer.broker.v1 import broker_log_service_pb2 as pb
from aquifer.broker.v1.broker_log_service_pb2_grpc import BrokerLogServiceStub
from aquifer_broker.app import BrokerNode
from aquifer_broker.config.broker_config import BrokerConfig
from aquifer_core.errors import UnavailableError
from aquifer_metadata.app import running_server
from aquifer_rpc.channel import connect
from aquifer_rpc.settings import (
    GrpcClientSettings,
    GrpcServerSettings,
    TlsClientSettings,
    TlsServerSettings,
)
from fixtures.broker_node import bootstrap, broker_properties
from fixtures.kafka_clients import consume, in_thread, produce
from fixtures.metadata_service import metadata_settings
from fixtures.polling import eventually
from fixtures.tiered_broker import TieredBroker, fill
from fixtures.tls_authority import Authority, TlsAuthority, TlsFolder

WAIT_S = 60


@pytest.fixture
def server_tls(tls_authority: TlsAuthority) -> TlsServerSettings:
    """A server that takes only callers with a certificate."""
    return TlsServerSettings(
        certificate_file=tls_authority.certificate_file,
        key_file=tls_authority.key_file,
        client_ca_file=tls_authority.ca_file,
    )


@pytest.fixture
def broker_tls(tls_authority: TlsAuthority) -> dict[str, str]:
    """What a broker of such a suite has in its properties."""
    return {
        "aquifer.tls.ca.file": str(tls_authority.ca_file),
        "aquifer.tls.certificate.file": str(tls_authority.certificate_file),
        "aquifer.tls.key.file": str(tls_authority.key_file),
    }


@pytest.fixture
async def tiered_with_tls(
    tmp_path: Path,
    server_tls: TlsServerSettings,
    broker_tls: dict[str, str],
    tls_authority: TlsAuthority,
) -> AsyncIterator[TieredBroker]:
    """A broker and its manager, each with a certificate that the other asks for."""
    made = TieredBroker(tmp_path)
    made.properties = broker_tls
    made.manager_settings = {
        "grpc": GrpcServerSettings(drain_grace_s=0.2, listen="127.0.0.1:0", tls=server_tls),
        "broker_client": GrpcClientSettings(
            max_attempts=2,
            tls=TlsClientSettings(
                ca_file=tls_authority.ca_file,
                certificate_file=tls_authority.certificate_file,
                key_file=tls_authority.key_file,
            ),
        ),
    }
    await made.start_manager()
    await made.start()
    yield made
    await made.stop()
    await made.stop_manager()


async def test_a_partition_is_tiered_over_mutual_tls(tiered_with_tls: TieredBroker) -> None:
    hosted = await tiered_with_tls.create()
    await fill(hosted, 2)
    await eventually(
        lambda: hosted.log.highest_offset_in_remote_storage == hosted.log.log_end_offset - 1,
        timeout_s=WAIT_S,
    )


async def test_tiering_goes_on_when_every_certificate_and_the_authority_are_replaced(
    tiered_with_tls: TieredBroker, tls_authority: TlsAuthority, tmp_path: Path
) -> None:
    hosted = await tiered_with_tls.create()
    next_authority = Authority("next")
    fresh = TlsFolder(tmp_path / "fresh").write(next_authority, pair=next_authority.issue())
    in_use = TlsFolder(tls_authority.ca_file.parent)
    former = TlsFolder(tmp_path / "former")
    former.root.mkdir()
    for name in ("ca.pem", "own.pem", "own.key"):
        former.replace(former.root / name, (in_use.root / name).read_bytes())
    assert await _is_let_in(tiered_with_tls, former)
    in_use.write(next_authority, pair=next_authority.issue())
    await eventually(lambda: _is_let_in(tiered_with_tls, fresh), timeout_s=WAIT_S)
    assert not await _is_let_in(tiered_with_tls, former)

    await fill(hosted, 2)
    await eventually(
        lambda: hosted.log.highest_offset_in_remote_storage == hosted.log.log_end_offset - 1,
        timeout_s=WAIT_S,
    )


async def _is_let_in(broker: TieredBroker, folder: TlsFolder) -> bool:
    """Whether the log service of the broker takes a caller with these files."""
    tls = TlsClientSettings(
        ca_file=folder.ca_file, certificate_file=folder.certificate_file, key_file=folder.key_file
    )
    settings = GrpcClientSettings(tls=tls, max_attempts=1, private_connection=True)
    async with connect(broker.tiering.broker_log_address, settings=settings) as channel:
        try:
            await BrokerLogServiceStub(channel).DescribeLogs(pb.DescribeLogsRequest())
        except UnavailableError:
            return False
        return True


async def test_the_logs_of_a_broker_are_not_for_callers_without_a_certificate(
    tiered_with_tls: TieredBroker, tls_authority: TlsAuthority
) -> None:
    address = tiered_with_tls.tiering.broker_log_address
    for tls in (None, TlsClientSettings(ca_file=tls_authority.ca_file)):
        settings = GrpcClientSettings(tls=tls, max_attempts=1, private_connection=True)
        async with connect(address, settings=settings) as channel:
            with pytest.raises(UnavailableError):
                await BrokerLogServiceStub(channel).DescribeLogs(pb.DescribeLogsRequest())


async def test_a_broker_finds_a_metadata_service_that_asks_for_its_certificate(
    tmp_path: Path, metadata_dsn: str, server_tls: TlsServerSettings, broker_tls: dict[str, str]
) -> None:
    settings = metadata_settings(metadata_dsn).model_copy(
        update={"grpc": GrpcServerSettings(tls=server_tls)}
    )
    async with running_server(settings) as server:
        properties = broker_properties(tmp_path / "broker-1") | broker_tls
        properties["aquifer.metadata.endpoints"] = f"127.0.0.1:{server.port}"
        async with BrokerNode(BrokerConfig.parse(properties)) as node:
            address = bootstrap(node)
            await in_thread(lambda: produce(address, "t", [b"over TLS"]))
            read = await in_thread(lambda: consume(address, "t", 1))
    assert [each.value() for each in read] == [b"over TLS"]
