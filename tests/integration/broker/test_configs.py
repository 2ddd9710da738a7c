"""Settings of topics and brokers through the admin client."""

from typing import Any

import pytest
from aquifer_broker.app import BrokerNode
from aquifer_broker.cluster.ports import ConfigChange, NewTopic
from aquifer_broker.cluster.ports import ConfigResource as StoredResource
from aquifer_broker.protocol.versions import ApiKey
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from fixtures.broker_logs import client_batch
from fixtures.broker_node import StartBroker, bootstrap
from fixtures.cluster_metadata import InMemoryClusterMetadata
from fixtures.kafka_clients import create_topic, in_thread
from fixtures.kafka_wire import KafkaWire
from fixtures.polling import eventually
from fixtures.wire_topic import WireTopic
from kio.schema.errors import ErrorCode

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


async def alter_brokers(
    node: BrokerNode, name: str, **configs: str
) -> tuple[ErrorCode, str | None]:
    """Alter settings of one broker, or of all with an empty name, which librdkafka does not send."""
    entries = [
        {"name": key.replace("_", "."), "value": value, "config_operation": 0}
        for key, value in configs.items()
    ]
    resource = {"resource_type": 4, "resource_name": name, "configs": entries}
    asked = {"resources": [resource], "validate_only": False}
    async with KafkaWire(node.port("PLAINTEXT")) as wire:
        (told,) = (await wire.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked)).responses
    return told.error_code, told.error_message


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


async def test_a_broker_setting_that_could_not_be_used_is_refused_and_the_others_go_on_counting(
    broker: BrokerNode, cluster_metadata: InMemoryClusterMetadata
) -> None:
    address = bootstrap(broker)
    await in_thread(lambda: alter(address, "1", ("log.retention.ms", "5000", SET), broker=True))
    for name in ("1", ""):
        code, message = await alter_brokers(broker, name, log_cleanup_policy="shrink")
        assert code is ErrorCode.invalid_config
        assert "log.cleanup.policy='shrink' is not valid" in (message or "")
    # What is stored all the same, by a broker of another version, costs nothing but itself.
    bad = ConfigChange(key="log.cleanup.policy", value="shrink")
    more = ConfigChange(key="remote.fetch.max.wait.ms", value="123")
    await cluster_metadata.alter_configs(StoredResource.BROKER, "1", [bad, more])
    await eventually(lambda: broker.services.config.remote_fetch_max_wait_ms == 123)
    assert broker.services.config.log_defaults.retention_ms == 5000


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("remote.log.manager.copy.max.bytes.per.second", "COPY_MAX_BYTES_PER_SECOND"),
        ("remote.log.manager.fetch.max.bytes.per.second", "FETCH_MAX_BYTES_PER_SECOND"),
        ("remote.log.index.file.cache.total.size.bytes", "INDEX_CACHE_BYTES"),
        ("remote.log.reader.threads", "READER_THREADS"),
    ],
)
async def test_a_setting_of_the_manager_is_refused_with_where_it_counts(
    broker: BrokerNode, cluster_metadata: InMemoryClusterMetadata, key: str, instead: str
) -> None:
    """An operator who limits copying would wait in vain for what was reported as done."""
    code, message = await alter_brokers(broker, "", **{key: "100"})
    assert code is ErrorCode.invalid_config
    assert f"set AQUIFER_MANAGER_{instead} of the manager" in (message or "")
    described = await in_thread(describe, bootstrap(broker), "1", ResourceType.BROKER)
    assert described[key].is_read_only
    # What another version took all the same can be taken back.
    stored = [ConfigChange(key=each, value="100") for each in (key, "of.another.version")]
    await cluster_metadata.alter_configs(StoredResource.BROKER, "1", stored)
    await eventually(lambda: len(broker.view.dynamic_configs("1")) == 2)
    delete = AlterConfigOpType.DELETE
    changes = [(each.key, None, delete) for each in stored]
    await in_thread(lambda: alter(bootstrap(broker), "1", *changes, broker=True))
    assert cluster_metadata.broker_configs["1"] == {}


async def test_settings_of_a_broker_that_does_not_exist_are_refused(broker: BrokerNode) -> None:
    for name in ("7", "one"):
        code, message = await alter_brokers(broker, name, log_retention_ms="5")
        assert code is ErrorCode.invalid_request
        assert f"there is no broker {name}" in (message or "")


async def test_a_topic_that_a_changed_default_made_invalid_can_be_put_right(
    broker: BrokerNode,
) -> None:
    address = bootstrap(broker)
    await in_thread(lambda: create_topic(address, "t", local_retention_ms="100000"))
    await alter_brokers(broker, "", log_retention_ms="50000")
    await eventually(lambda: broker.services.config.log_defaults.retention_ms == 50_000)
    error = await refusal(address, "t", ("segment.ms", "1000", SET))
    assert "local.retention.ms='100000' is not valid" in error.str()
    await in_thread(alter, address, "t", ("local.retention.ms", "20000", SET))
    assert (await in_thread(describe, address, "t"))["local.retention.ms"].value == "20000"


async def test_a_default_of_compaction_leaves_tiered_topics_tiered(
    broker: BrokerNode, cluster_metadata: InMemoryClusterMetadata
) -> None:
    """Ending the tiering of a topic moves its log start, and what is remote would be gone with it."""
    tiered = NewTopic(
        name="t",
        num_partitions=1,
        replication_factor=1,
        configs={"remote.storage.enable": "true"},
    )
    await cluster_metadata.create_topics([tiered])
    log = await eventually(lambda: broker.services.logs.get("t", 0))
    assert log.config.tiered
    await alter_brokers(broker, "", log_cleanup_policy="compact", log_retention_ms="5000")
    await eventually(lambda: log.config.retention_ms == 5000)
    assert log.config.tiered


async def test_dynamic_settings_are_not_shown_as_those_of_the_file(
    start_broker: StartBroker,
) -> None:
    node = await start_broker(1, log_retention_hours="2")
    address = bootstrap(node)
    await in_thread(create_topic, address, "t")
    await alter_brokers(node, "", log_retention_ms="7000")
    await alter_brokers(node, "1", log_retention_ms="5000")
    await eventually(lambda: node.services.config.log_defaults.retention_ms == 5000)
    async with KafkaWire(node.port("PLAINTEXT")) as wire:

        async def layers(kind: ResourceType, name: str, key: str) -> list[tuple[str, str, int]]:
            resource = {
                "resource_type": kind.value,
                "resource_name": name,
                "configuration_keys": [key],
            }
            asked = {"resources": [resource], "include_synonyms": True}
            response = await wire.ask(ApiKey.DESCRIBE_CONFIGS, 4, asked)
            (entry,) = response.results[0].configs
            return [(each.name, each.value, each.source) for each in entry.synonyms]

        dynamic = [("log.retention.ms", "5000", 2), ("log.retention.ms", "7000", 3)]
        assert await layers(ResourceType.BROKER, "1", "log.retention.ms") == [
            *dynamic,
            ("log.retention.ms", None, 5),
        ]
        assert await layers(ResourceType.TOPIC, "t", "retention.ms") == [
            *dynamic,
            ("log.retention.hours", str(2 * 3_600_000), 4),
            ("retention.ms", "604800000", 5),
        ]


async def test_a_broker_that_starts_keeps_what_only_its_file_would_have_deleted(
    start_broker: StartBroker, cluster_metadata: InMemoryClusterMetadata
) -> None:
    """Logs are opened while retention already runs, and a dynamic setting counts from the first of them on."""
    forever = ConfigChange(key="log.retention.ms", value="-1")
    await cluster_metadata.alter_configs(StoredResource.BROKER, "", [forever])
    at_once = {"log_retention_ms": "1", "log_retention_check_interval_ms": "1"}
    names = [f"t{number}" for number in range(8)]
    node = await start_broker(1, stop=True, **at_once)
    async with node, KafkaWire(node.port("PLAINTEXT")) as wire:
        for name in names:
            topic = await WireTopic.create(wire, name, segment_bytes="1000")
            for _ in range(3):
                answer = await topic.produce(client_batch(value=bytes(900)))
                assert answer.error_code is ErrorCode.none
    node = await start_broker(1, **at_once)
    logs = [node.services.logs.get(name, 0) for name in names]
    assert [log.local_log_start_offset for log in logs] == [0] * len(names)


async def test_a_setting_that_is_changed_twice_in_one_request_is_refused(
    broker: BrokerNode,
) -> None:
    """As in Kafka: which of them counts would be a matter of luck."""
    append, delete = 2, 1
    cases = [
        [("retention.ms", "1000", 0), ("retention.ms", "2000", 0)],
        [("cleanup.policy", "compact", append), ("cleanup.policy", None, delete)],
    ]
    async with KafkaWire(broker.port("PLAINTEXT")) as wire:
        await WireTopic.create(wire)
        for case in cases:
            entries = [
                {"name": key, "value": value, "config_operation": how} for key, value, how in case
            ]
            resource = {"resource_type": 2, "resource_name": "t", "configs": entries}
            asked = {"resources": [resource], "validate_only": False}
            (told,) = (await wire.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked)).responses
            assert told.error_code is ErrorCode.invalid_request
            assert f"{case[0][0]} is named twice" in told.error_message
            resource["configs"] = entries[:1] * 2
            (told,) = (await wire.ask(ApiKey.ALTER_CONFIGS, 2, asked)).responses
            assert told.error_code is ErrorCode.invalid_request
    assert broker.view.topics["t"].configs == {}


async def test_a_resource_that_is_altered_twice_in_one_request_is_refused(
    broker: BrokerNode,
) -> None:
    entry = {"name": "retention.ms", "value": "1000", "config_operation": 0}
    twice = {"resource_type": 2, "resource_name": "t", "configs": [entry]}
    once = {**twice, "resource_name": "other"}
    asked = {"resources": [twice, once, twice], "validate_only": False}
    async with KafkaWire(broker.port("PLAINTEXT")) as wire:
        for name in ("t", "other"):
            await WireTopic.create(wire, name)
        for api_key, version in ((ApiKey.INCREMENTAL_ALTER_CONFIGS, 1), (ApiKey.ALTER_CONFIGS, 2)):
            responses = (await wire.ask(api_key, version, asked)).responses
            assert {each.resource_name: each.error_code for each in responses} == {
                "t": ErrorCode.invalid_request,
                "other": ErrorCode.none,
            }
    assert broker.view.topics["t"].configs == {}
