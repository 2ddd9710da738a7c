"""Settings of topics and brokers through the admin client."""

from typing import Any

import pytest
from aquifer_broker.app import BrokerNode
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from fixtures.broker_node import StartBroker, bootstrap
from fixtures.kafka_clients import create_topic, in_thread
from fixtures.polling import eventually

SET = AlterConfigOpType.SET


def alter(
    address: str,
    name: str,
    *changes: tuple[str, str | None, AlterConfigOpType],
    broker: bool = False,
) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    entries = [ConfigEntry(key, value, incremental_operation=how) for key, value, how in changes]
    kind = ResourceType.BROKER if broker else ResourceType.TOPIC
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(60)


def describe(address: str, name: str, kind: ResourceType = ResourceType.TOPIC) -> dict[str, Any]:
    admin = AdminClient({"bootstrap.servers": address})
    resource = ConfigResource(kind, name)
    described: dict[str, Any] = admin.describe_configs([resource])[resource].result(60)
    return described


async def refusal(*args: Any, **kwargs: Any) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        await in_thread(lambda: alter(*args, **kwargs))
    error: KafkaError = caught.value.args[0]
    return error


async def test_what_is_set_is_shown_with_its_source_and_takes_effect(
    start_broker: StartBroker,
) -> None:
    node = await start_broker(1, log_retention_hours="2")
    address = bootstrap(node)
    await in_thread(lambda: create_topic(address, "t", segment_bytes="1000000"))
    described = await in_thread(describe, address, "t")
    assert described["segment.bytes"].value == "1000000"
    assert described["segment.bytes"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert described["retention.ms"].value == str(2 * 3600 * 1000)
    assert described["retention.ms"].source == ConfigSource.STATIC_BROKER_CONFIG.value
    assert described["remote.storage.enable"].value == "false"
    assert described["remote.storage.enable"].source == ConfigSource.DEFAULT_CONFIG.value
    await in_thread(alter, address, "t", ("retention.ms", "5000", SET))
    log = node.services.logs.get("t", 0)
    await eventually(lambda: log.config.retention_ms == 5000)
    await in_thread(alter, address, "t", ("retention.ms", None, AlterConfigOpType.DELETE))
    await eventually(lambda: log.config.retention_ms == 2 * 3600 * 1000)


async def test_lists_are_added_to_and_taken_from(broker: BrokerNode) -> None:
    address = bootstrap(broker)
    await in_thread(create_topic, address, "t")
    add, take = AlterConfigOpType.APPEND, AlterConfigOpType.SUBTRACT
    await in_thread(alter, address, "t", ("cleanup.policy", "compact", add))
    described = await in_thread(describe, address, "t")
    assert described["cleanup.policy"].value == "delete,compact"
    await in_thread(alter, address, "t", ("cleanup.policy", "delete", take))
    described = await in_thread(describe, address, "t")
    assert described["cleanup.policy"].value == "compact"
    error = await refusal(address, "t", ("retention.ms", "1", add))
    assert error.code() == KafkaError.INVALID_CONFIG


@pytest.mark.parametrize(
    ("configs", "told"),
    [
        ({"no.such.key": "1"}, "Unknown topic config name: no.such.key"),
        ({"retention.ms": "soon"}, "retention.ms='soon' is not valid"),
        ({"local.retention.ms": "10", "retention.ms": "5"}, "must not exceed retention.ms (5)"),
        ({"local.retention.bytes": "-1", "retention.bytes": "5"}, "only if retention.bytes (5) is"),
        ({"remote.storage.enable": "true"}, "tiered storage is off on this cluster"),
        ({"min.cleanable.dirty.ratio": "2"}, "give a number from 0 to 1"),
    ],
)
async def test_settings_that_cannot_be_are_refused_at_create_and_at_alter(
    broker: BrokerNode, configs: dict[str, str], told: str
) -> None:
    address = bootstrap(broker)
    underscored = {key.replace(".", "_"): value for key, value in configs.items()}
    with pytest.raises(KafkaException) as caught:
        await in_thread(lambda: create_topic(address, "refused", **underscored))
    await in_thread(create_topic, address, "t")
    altered = await refusal(address, "t", *((key, value, SET) for key, value in configs.items()))
    for error in (caught.value.args[0], altered):
        assert error.code() == KafkaError.INVALID_CONFIG
        assert told in error.str()
    assert broker.view.topic("refused") is None


async def test_a_name_that_cannot_be_is_refused(broker: BrokerNode) -> None:
    with pytest.raises(KafkaException) as caught:
        await in_thread(create_topic, bootstrap(broker), "no/slash")
    assert caught.value.args[0].code() == KafkaError.TOPIC_EXCEPTION


async def test_dynamic_settings_of_brokers_take_effect_and_others_are_refused(
    broker: BrokerNode,
) -> None:
    address = bootstrap(broker)
    await in_thread(create_topic, address, "t")
    await in_thread(
        lambda: alter(address, "1", ("remote.fetch.max.wait.ms", "123", SET), broker=True)
    )
    await eventually(lambda: broker.services.config.remote_fetch_max_wait_ms == 123)
    await in_thread(lambda: alter(address, "1", ("log.retention.ms", "9999", SET), broker=True))
    log = broker.services.logs.get("t", 0)
    assert log is not None
    await eventually(lambda: log.config.retention_ms == 9999)
    described = await in_thread(describe, address, "1", ResourceType.BROKER)
    waits = described["remote.fetch.max.wait.ms"]
    assert (waits.value, waits.source) == ("123", ConfigSource.DYNAMIC_BROKER_CONFIG.value)
    assert not waits.is_read_only
    assert described["log.dirs"].is_read_only
    assert described["ssl.key.password"].is_sensitive
    error = await refusal(address, "1", ("log.dirs", "/elsewhere", SET), broker=True)
    assert "set it in server.properties and restart" in error.str()


async def test_settings_of_what_is_not_there_are_refused(broker: BrokerNode) -> None:
    address = bootstrap(broker)
    error = await refusal(address, "none", ("retention.ms", "1", SET))
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    with pytest.raises(KafkaException):
        await in_thread(describe, address, "none")
