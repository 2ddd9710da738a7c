"""What `server.properties` may say, and how it is told when it may not."""

import socket

import pytest
from aquifer_broker.config.broker_config import BrokerConfig
from aquifer_broker.config.broker_keys import BROKER_DEFINITIONS
from aquifer_broker.config.plugins import check_plugins
from aquifer_broker.config.suite_tls import client_tls, role_tls
from aquifer_broker.config.topic_config import TOPIC_DEFINITIONS
from aquifer_broker.listening import endpoints_told
from aquifer_client import RemoteRoleConfig
from aquifer_core.errors import InvalidConfigurationError

MINIMAL = {"node.id": "1", "aquifer.metadata.endpoints": "127.0.0.1:9402"}
TIERED = {
    **MINIMAL,
    "remote.log.storage.enable": "true",
    "aquifer.manager.endpoints": "127.0.0.1:9403",
    "remote.log.storage.manager.class.name": "aquifer_client.GrpcRemoteStorageManager",
    "remote.log.metadata.manager.class.name": "aquifer_client.GrpcRemoteLogMetadataManager",
}


def parse(**more: str) -> BrokerConfig:
    return BrokerConfig.parse({**MINIMAL, **{key.replace("_", "."): v for key, v in more.items()}})


def refusal(properties: dict[str, str]) -> str:
    with pytest.raises(InvalidConfigurationError) as caught:
        check_plugins(BrokerConfig.parse(properties))
    assert "\n" not in caught.value.message
    return caught.value.message


def test_a_minimal_file_gives_kafkas_defaults() -> None:
    config = parse()
    assert config.num_partitions == 1
    assert config.log_defaults.retention_ms == 7 * 24 * 3600 * 1000
    assert [(each.name, each.port) for each in config.listeners] == [("PLAINTEXT", 9092)]


def test_keys_that_count_elsewhere_are_taken_and_named() -> None:
    """SR-6, SR-8: Kafka's file is valid, and says nothing to the manager."""
    config = parse(remote_log_manager_thread_pool_size="4", remote_log_reader_threads="3")
    assert config.keys_without_effect == {
        "remote.log.manager.thread.pool.size": "AQUIFER_MANAGER_THREAD_POOL_SIZE of the manager",
        "remote.log.reader.threads": "AQUIFER_MANAGER_READER_THREADS of the manager",
    }
    assert not parse().keys_without_effect


def test_remote_storage_is_off_unless_enabled_and_then_nothing_is_imported() -> None:
    """SR-1."""
    config = BrokerConfig.parse({**MINIMAL, "remote.log.storage.manager.class.name": "no.Such"})
    assert not config.remote_storage_enabled
    assert check_plugins(config) is None


@pytest.mark.parametrize("key", ["remote.log.storage.enable", "remote.log.storage.system.enable"])
def test_both_names_of_the_switch_are_understood(key: str) -> None:
    """SR-1."""
    properties = {name: value for name, value in TIERED.items() if "storage.enable" not in name}
    assert BrokerConfig.parse({**properties, key: "true"}).remote_storage_enabled


def test_both_names_of_the_switch_with_different_values_are_refused() -> None:
    """SR-1."""
    message = refusal({**TIERED, "remote.log.storage.system.enable": "false"})
    assert "contradict each other" in message
    assert "remote.log.storage.enable" in message
    assert "remote.log.storage.system.enable" in message
    assert BrokerConfig.parse(
        {**TIERED, "remote.log.storage.system.enable": "TRUE"}
    ).remote_storage_enabled


def test_a_missing_storage_manager_is_told() -> None:
    """SR-2."""
    properties = dict(TIERED)
    del properties["remote.log.storage.manager.class.name"]
    assert refusal(properties).startswith("remote.log.storage.manager.class.name is missing")


@pytest.mark.parametrize("path", ["no_such_package.Thing", "aquifer_client.NoSuchClass", "Plain"])
def test_a_storage_manager_that_cannot_be_imported_is_told_with_the_cause(path: str) -> None:
    """SR-2."""
    message = refusal({**TIERED, "remote.log.storage.manager.class.name": path})
    assert f"remote.log.storage.manager.class.name={path!r} cannot be imported (" in message


@pytest.mark.parametrize("path", ["collections.OrderedDict", "os.path"])
def test_something_that_is_no_storage_manager_is_told(path: str) -> None:
    """SR-2."""
    message = refusal({**TIERED, "remote.log.storage.manager.class.name": path})
    assert f"{path!r} is not a RemoteStorageManager" in message


def test_plugin_properties_are_passed_on_untouched() -> None:
    """SR-4, SR-5."""
    config = BrokerConfig.parse(
        {
            **TIERED,
            "log.dirs": "/a,/b",
            "remote.log.storage.my.Key": " as given ",
            "remote.log.metadata.topic.num.partitions": "007",
        }
    )
    storage = config.storage_manager_configs("cluster")
    assert storage["remote.log.storage.my.Key"] == " as given "
    assert not any(key.startswith("remote.log.metadata.") for key in storage)
    assert (storage["broker.id"], storage["cluster.id"]) == ("1", "cluster")
    assert storage["log.dir"] == "/a"
    metadata = config.metadata_manager_configs("cluster")
    assert metadata["remote.log.metadata.topic.num.partitions"] == "007"
    assert config.unknown_keys == ()


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("remote.log.manager.thread.pool.size", "1000", "1001"),
        ("remote.log.manager.task.interval.ms", "1", "0"),
        ("remote.log.reader.threads", "1", "0"),
        ("remote.log.reader.max.pending.tasks", "100000", "100001"),
        ("remote.log.retention.minutes", "1", "0"),
        ("remote.log.retention.bytes", "1", "0"),
    ],
)
def test_ranges_of_the_remote_log_manager_are_kept(key: str, good: str, bad: str) -> None:
    """SR-6, SR-7, SR-8, SR-9, SR-10, SR-11."""
    assert BrokerConfig.parse({**MINIMAL, key: good}).values[key] == int(good)
    message = refusal({**MINIMAL, key: bad})
    assert f"{key}='{bad}' is not valid: give a number" in message


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"node.id": "x"}, "node.id='x' is not valid: give a value of type 32-bit whole number"),
        ({"node.id": "1"}, "aquifer.metadata.endpoints is missing"),
        ({"aquifer.metadata.endpoints": "h:1"}, "node.id is missing"),
        ({**MINIMAL, "broker.id": "2"}, "contradict each other"),
        ({**MINIMAL, "listeners": "9092"}, "give NAME://host:port"),
        ({**MINIMAL, "listeners": "A://:1"}, "add A:PLAINTEXT or A:SSL"),
        ({**MINIMAL, "listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "another name"),
        ({**MINIMAL, "advertised.listeners": "X://h:1"}, "X is not among the listeners"),
        ({**MINIMAL, "log.retention.ms": "-2"}, "log.retention.ms='-2'"),
        ({**MINIMAL, "log.cleanup.policy": "shred"}, "log.cleanup.policy='shred'"),
        ({**MINIMAL, "remote.log.storage.enable": "yes"}, "true or false"),
        ({**MINIMAL, "remote.log.storage.enable": "true"}, "aquifer.manager.endpoints is missing"),
        (
            {**MINIMAL, "group.min.session.timeout.ms": "9", "group.max.session.timeout.ms": "8"},
            "must not exceed group.max.session.timeout.ms (8)",
        ),
    ],
)
def test_a_refusal_names_key_value_and_remedy(properties: dict[str, str], told: str) -> None:
    assert told in refusal(properties)


def test_advertised_listeners_take_the_place_of_those_they_name() -> None:
    config = parse(
        listeners="PLAINTEXT://:9092,INTERNAL://:9093",
        advertised_listeners="PLAINTEXT://kafka.example:19092",
        listener_security_protocol_map="INTERNAL:PLAINTEXT",
    )
    assert [(each.name, each.host, each.port) for each in config.advertised_listeners] == [
        ("PLAINTEXT", "kafka.example", 19092),
        ("INTERNAL", "", 9093),
    ]


def test_unknown_keys_are_known_as_such() -> None:
    assert parse(no_such_key="1", log_retention_hours="1").unknown_keys == ("no.such.key",)


def test_every_key_is_documented_and_named_once() -> None:
    names = [name for each in BROKER_DEFINITIONS for name in (each.name, *each.aliases)]
    assert len(names) == len(set(names))
    assert all(each.doc.endswith(".") for each in BROKER_DEFINITIONS)
    assert all(each.doc.endswith(".") for each in TOPIC_DEFINITIONS.values())


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ("aquifer.tls.certificate.file", "aquifer.tls.key.file"),
        ("aquifer.tls.key.file", "aquifer.tls.certificate.file"),
        ("aquifer.tls.server.name", "aquifer.tls.ca.file"),
    ],
)
def test_half_a_tls_configuration_is_refused(given: str, missing: str) -> None:
    message = refusal({**MINIMAL, given: "x.pem"})
    assert given in message
    assert f"give {missing} as well" in message


def test_the_grpc_roles_speak_tls_as_the_broker_does() -> None:
    values = BrokerConfig.parse(
        {
            **MINIMAL,
            "aquifer.tls.ca.file": "ca.pem",
            "aquifer.tls.certificate.file": "own.pem",
            "aquifer.tls.key.file": "own.key",
            "aquifer.tls.server.name": "metadata.internal",
        }
    ).values
    role = RemoteRoleConfig.parse({"endpoints": "metadata:7200", **role_tls(values)})
    assert role.tls is not None
    assert role.tls == client_tls(values)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_an_address_that_clients_cannot_connect_to_is_not_advertised(host: str) -> None:
    everywhere = f"PLAINTEXT://{host}:9092"
    with pytest.raises(InvalidConfigurationError, match="at which they reach this broker"):
        parse(listeners=everywhere)
    with pytest.raises(InvalidConfigurationError, match="at which they reach this broker"):
        parse(advertised_listeners=everywhere)
    config = parse(listeners=everywhere, advertised_listeners="PLAINTEXT://broker:9092")
    assert [each.host for each in config.advertised_listeners] == ["broker"]


async def test_a_listener_on_all_interfaces_is_told_by_the_name_of_its_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clients of another machine that are told of localhost connect to themselves."""
    monkeypatch.setattr(socket, "getfqdn", lambda: "node-1.example")
    config = parse(
        listeners="PLAINTEXT://:9092,INTERNAL://127.0.0.1:0",
        listener_security_protocol_map="INTERNAL:PLAINTEXT",
    )
    told = await endpoints_told(config, {"PLAINTEXT": 9092, "INTERNAL": 40_001})
    assert [(each.listener, each.host, each.port) for each in told] == [
        ("PLAINTEXT", "node-1.example", 9092),
        ("INTERNAL", "127.0.0.1", 40_001),
    ]


@pytest.mark.parametrize("listener", ["0.0.0.0:7400", "[::]:7400", ":7400"])
def test_the_manager_is_not_told_an_address_that_it_cannot_connect_to(listener: str) -> None:
    """Segments of this broker would never be copied."""
    key = "aquifer.broker.log.service.listener"
    message = refusal({**TIERED, key: listener})
    assert "give aquifer.broker.log.service.advertised as well" in message
    assert "give host:port" in refusal({**TIERED, key: "7400"})
    more = {"aquifer.broker.log.service.advertised": "broker-1:7400"}
    assert BrokerConfig.parse({**TIERED, key: listener, **more}).remote_storage_enabled
    assert BrokerConfig.parse({**MINIMAL, key: listener})
