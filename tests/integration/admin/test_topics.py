"""`aquifer topics` against the metadata service on a real PostgreSQL."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aquifer.metadata.v1 import cluster_metadata_service_pb2 as pb
from aquifer_core.ids import KafkaUuid
from aquifer_metadata.app import running_server
from aquifer_rpc.calls import call_unary
from aquifer_rpc.server import GrpcServer
from fixtures.admin_command import AdminCommand
from fixtures.metadata_service import metadata_settings


@pytest.fixture
async def metadata_server(metadata_dsn: str) -> AsyncIterator[GrpcServer]:
    """A metadata service whose brokers keep their leases, though they send no heartbeats."""
    async with running_server(metadata_settings(metadata_dsn, broker_lease_ms=3_600_000)) as server:
        yield server


@pytest.fixture
async def admin(metadata_server: GrpcServer, cluster_stub: Any) -> AdminCommand:
    """The command on a cluster with two brokers."""
    for broker_id in (1, 2):
        broker = pb.Broker(
            broker_id=broker_id,
            incarnation=str(KafkaUuid.random()),
            endpoints=[pb.Endpoint(listener="PLAINTEXT", host="127.0.0.1", port=1)],
            log_dirs=[str(KafkaUuid.random())],
        )
        await call_unary(cluster_stub.RegisterBroker, pb.RegisterBrokerRequest(broker=broker))
    return AdminCommand(metadata=f"127.0.0.1:{metadata_server.port}")


async def test_a_topic_lives_from_create_to_delete(admin: AdminCommand) -> None:
    created = await admin.json(
        *("topics", "create", "orders", "--partitions", "3", "--replication-factor", "1"),
        *("--tiered", "--config", "retention.ms=1000"),
    )
    [outcome] = created["topics"]
    assert (outcome["topic"], outcome["error_reason"]) == ("orders", None)

    [listed] = (await admin.json("topics", "list"))["topics"]
    assert listed == {
        "topic": "orders",
        "topic_id": outcome["topic_id"],
        "partition_count": 3,
        "replication_factor": 1,
        "leaderless_partitions": 0,
        "tiered": True,
        "configs": {"remote.storage.enable": "true", "retention.ms": "1000"},
        "remote_segments": None,
        "remote_bytes": None,
    }

    await admin.json("topics", "alter", "orders", "--partitions", "4", "--unset", "retention.ms")
    [altered] = (await admin.json("topics", "list"))["topics"]
    assert altered["partition_count"] == 4
    assert altered["configs"] == {"remote.storage.enable": "true"}

    deleted = await admin.json("topics", "delete", "orders", "--yes")
    assert [each["topic"] for each in deleted["topics"]] == ["orders"]
    assert (await admin.json("topics", "list"))["topics"] == []


async def test_partitions_and_settings_are_changed_together_or_not_at_all(
    admin: AdminCommand,
) -> None:
    """Partitions cannot be taken back: they were added although the command failed, and its next run failed because of them."""
    await admin.json("topics", "create", "orders", "--partitions", "1")
    refused = await admin.run("topics", "alter", "orders", "--partitions", "2", "--set", "nope=1")
    assert (refused.code, "INVALID_CONFIGURATION" in refused.err) == (1, True)
    [listed] = (await admin.json("topics", "list"))["topics"]
    assert listed["partition_count"] == 1
    done = await admin.json("topics", "alter", "orders", "--partitions=2", "--set=retention.ms=9")
    assert [each["topic"] for each in done["topics"]] == ["orders"]
    assert done["configs"] == {"retention.ms": "9"}
    [listed] = (await admin.json("topics", "list"))["topics"]
    assert (listed["partition_count"], listed["configs"]) == (2, done["configs"])


async def test_a_table_shows_what_the_document_says(admin: AdminCommand) -> None:
    await admin.json("topics", "create", "orders", "--partitions", "2")
    shown = await admin.run("topics", "list")
    assert shown.code == 0
    assert shown.err == ""
    title, header, row = shown.out.splitlines()
    assert title.strip() == "Topics"
    assert header.split() == [
        *("TOPIC", "TOPIC", "ID", "PARTITIONS", "REPLICAS", "LEADERLESS", "TIERED")
    ]
    assert row.split()[0] == "orders"
    assert row.split()[2:] == ["2", "1", "0", "no"]


async def test_what_cannot_be_created_is_told_with_its_reason(admin: AdminCommand) -> None:
    await admin.json("topics", "create", "orders")
    again = await admin.run("topics", "create", "orders", "--json")
    assert again.code == 1
    assert again.document["topics"][0]["error_reason"] == "TOPIC_ALREADY_EXISTS"
    wide = await admin.run("topics", "create", "wide", "--replication-factor", "9", "--json")
    assert wide.document["topics"][0]["error_reason"] == "INVALID_REPLICATION_FACTOR"


async def test_a_compacted_topic_with_remote_storage_is_refused(admin: AdminCommand) -> None:
    """SR-12."""
    refused = await admin.run(
        *("topics", "create", "c", "--tiered", "--config", "cleanup.policy=compact", "--json")
    )
    assert refused.code == 1
    [outcome] = refused.document["topics"]
    assert outcome["error_reason"] == "INVALID_CONFIGURATION"
    assert (await admin.json("topics", "list"))["topics"] == []


async def test_checking_only_changes_nothing(admin: AdminCommand) -> None:
    await admin.json("topics", "create", "orders", "--validate-only")
    assert (await admin.json("topics", "list"))["topics"] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "describe", "nope"),
        ("topics", "alter", "nope", "--set", "retention.ms=1"),
        ("partitions", "describe", "nope", "0"),
    ],
)
async def test_an_unknown_topic_is_one_line_with_the_reason(
    admin: AdminCommand, arguments: tuple[str, ...]
) -> None:
    outcome = await admin.run(*arguments)
    assert (outcome.code, outcome.out) == (1, "")
    [line] = outcome.err.splitlines()
    assert "nope" in line
    assert line.endswith("(TOPIC_NOT_FOUND)")


async def test_a_topic_that_only_the_store_may_know_is_not_called_unknown_while_the_store_is_away(
    admin: AdminCommand,
) -> None:
    outcome = await admin.run("segments", "list", "nope")
    assert (outcome.code, outcome.out) == (1, "")
    [line] = outcome.err.splitlines()
    assert "there is no topic 'nope'" in line
    assert f"storage at {admin.storage}: does not answer" in line
    assert line.endswith("(PEER_UNAVAILABLE)")


async def refusal(admin: AdminCommand, *arguments: str) -> str:
    """Why a topic is not created."""
    refused = await admin.run("topics", "create", *arguments, "--json")
    assert refused.code == 1, refused
    [outcome] = refused.document["topics"]
    return str(outcome["error"])


async def test_a_deleted_topic_comes_back_under_its_id(admin: AdminCommand) -> None:
    """As long as nobody has begun to carry the deletion out."""
    new = ("topics", "create", "orders", "--tiered", "--partitions", "2")
    [made] = (await admin.json(*new))["topics"]
    topic_id = made["topic_id"]
    assert "has the id" in await refusal(admin, "second", "--topic-id", topic_id)
    await admin.json("topics", "delete", "orders", "--yes")
    renamed = await refusal(admin, "second", "--partitions", "2", "--topic-id", topic_id)
    assert "written as 'orders'" in renamed
    [back] = (await admin.json(*new, "--topic-id", topic_id))["topics"]
    assert (back["topic_id"], back["error_reason"]) == (topic_id, None)
    [listed] = (await admin.json("topics", "list"))["topics"]
    assert (listed["topic_id"], listed["partition_count"]) == (topic_id, 2)


async def test_what_is_no_topic_id_is_refused(admin: AdminCommand) -> None:
    refused = await admin.run("topics", "create", "orders", "--topic-id", "not an id")
    assert refused.code != 0
    assert "topic_id" in refused.out + refused.err
    assert (await admin.json("topics", "list"))["topics"] == []
