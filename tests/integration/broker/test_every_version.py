"""Every advertised version of every API is parsed and answered."""

import datetime
import uuid
from typing import Any, Final

import pytest
from aquifer_broker.app import BrokerNode
from aquifer_broker.protocol.versions import SUPPORTED, ApiKey
from fixtures.kafka_wire import KafkaWire
from kio.schema.errors import ErrorCode

SECOND: Final = datetime.timedelta(seconds=1)
VERSIONS: Final = [
    (api_key, version)
    for api_key, versions in SUPPORTED.items()
    for version in range(versions.lowest, versions.highest + 1)
]

MEMBER: Final = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}


def values_of(api_key: ApiKey, topic_id: uuid.UUID) -> dict[str, Any]:
    """Return values for every version at once; each takes what it has."""
    topic = {"name": "t", "topic": "t", "topic_id": topic_id}
    values: dict[ApiKey, dict[str, Any]] = {
        ApiKey.PRODUCE: {
            "transactional_id": None,
            "acks": -1,
            "timeout": SECOND,
            "topic_data": [{**topic, "partition_data": [{"index": 0, "records": b""}]}],
        },
        ApiKey.FETCH: {
            "replica_id": -1,
            "max_wait": SECOND * 0,
            "min_bytes": 0,
            "isolation_level": 1,
            "topics": [
                {
                    **topic,
                    "partitions": [
                        {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
                    ],
                }
            ],
            "forgotten_topics_data": [],
        },
        ApiKey.LIST_OFFSETS: {
            "replica_id": -1,
            "isolation_level": 0,
            "timeout": SECOND,
            "topics": [{**topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        },
        ApiKey.METADATA: {
            "topics": [{"name": "t", "topic_id": None}],
            "include_topic_authorized_operations": False,
            "include_cluster_authorized_operations": False,
        },
        ApiKey.OFFSET_COMMIT: {
            "group_id": "g",
            "member_id": "",
            "topics": [
                {
                    **topic,
                    "partitions": [
                        {"partition_index": 0, "committed_offset": 5, "committed_metadata": "x"}
                    ],
                }
            ],
        },
        ApiKey.OFFSET_FETCH: {
            "group_id": "g",
            "topics": [{**topic, "partition_indexes": [0]}],
            "groups": [{"group_id": "g", "topics": [{**topic, "partition_indexes": [0]}]}],
        },
        ApiKey.FIND_COORDINATOR: {"key": "g", "coordinator_keys": ["g"]},
        ApiKey.JOIN_GROUP: {
            "group_id": "g",
            "session_timeout": SECOND * 10,
            "rebalance_timeout": SECOND * 10,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"m"}],
        },
        ApiKey.HEARTBEAT: MEMBER,
        ApiKey.LEAVE_GROUP: {**MEMBER, "members": [MEMBER]},
        ApiKey.SYNC_GROUP: {
            **MEMBER,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": "m", "assignment": b"a"}],
        },
        ApiKey.DESCRIBE_GROUPS: {"groups": ["g"], "include_authorized_operations": False},
        ApiKey.LIST_GROUPS: {"states_filter": [], "types_filter": []},
        ApiKey.API_VERSIONS: {"client_software_name": "wire", "client_software_version": "1"},
        ApiKey.CREATE_TOPICS: {
            "topics": [
                {
                    "name": "new",
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [{"name": "retention.ms", "value": "1000"}],
                }
            ],
            "timeout": SECOND,
            "validate_only": True,
        },
        ApiKey.DELETE_TOPICS: {
            "topic_names": ["none"],
            "topics": [{"name": "none", "topic_id": None}],
            "timeout": SECOND,
        },
        ApiKey.DELETE_RECORDS: {
            "topics": [{**topic, "partitions": [{"partition_index": 0, "offset": 0}]}],
            "timeout": SECOND,
        },
        ApiKey.INIT_PRODUCER_ID: {"transactional_id": None, "transaction_timeout": SECOND},
        ApiKey.OFFSET_FOR_LEADER_EPOCH: {
            "topics": [{**topic, "partitions": [{"partition": 0, "leader_epoch": 0}]}]
        },
        ApiKey.DESCRIBE_CONFIGS: {
            "resources": [{"resource_type": 2, "resource_name": "t"}],
            "include_synonyms": True,
            "include_documentation": True,
        },
        ApiKey.ALTER_CONFIGS: {
            "resources": [{"resource_type": 2, "resource_name": "t", "configs": []}],
            "validate_only": True,
        },
        ApiKey.DESCRIBE_LOG_DIRS: {"topics": None},
        ApiKey.CREATE_PARTITIONS: {
            "topics": [{"name": "t", "count": 3, "assignments": None}],
            "timeout": SECOND,
            "validate_only": True,
        },
        ApiKey.DELETE_GROUPS: {"groups_names": ["none"]},
        ApiKey.INCREMENTAL_ALTER_CONFIGS: {
            "resources": [{"resource_type": 2, "resource_name": "t", "configs": []}],
            "validate_only": True,
        },
        ApiKey.OFFSET_DELETE: {
            "group_id": "none",
            "topics": [{**topic, "partitions": [{"partition_index": 0}]}],
        },
        ApiKey.DESCRIBE_CLUSTER: {
            "include_cluster_authorized_operations": False,
            "include_fenced_brokers": True,
        },
    }
    return values[api_key]


EXPECTED: Final = {
    ApiKey.PRODUCE: ErrorCode.invalid_record,
    ApiKey.HEARTBEAT: ErrorCode.unknown_member_id,
    ApiKey.SYNC_GROUP: ErrorCode.unknown_member_id,
    ApiKey.LEAVE_GROUP: ErrorCode.unknown_member_id,
    ApiKey.DELETE_TOPICS: ErrorCode.unknown_topic_or_partition,
    ApiKey.DELETE_GROUPS: ErrorCode.group_id_not_found,
    ApiKey.OFFSET_DELETE: ErrorCode.group_id_not_found,
}


def error_codes(value: Any) -> list[ErrorCode]:
    """Return every error code of a response, however deep."""
    if isinstance(value, ErrorCode):
        return [value]
    if isinstance(value, tuple):
        return [code for item in value for code in error_codes(item)]
    if hasattr(value, "__slots__") and hasattr(value, "__version__"):
        return [code for name in value.__slots__ for code in error_codes(getattr(value, name))]
    return []


async def create(wire: KafkaWire, name: str) -> uuid.UUID:
    """Create a topic of two partitions and return its id."""
    topic = {
        "name": name,
        "num_partitions": 2,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    response = await wire.ask(
        ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout": SECOND, "validate_only": False}
    )
    (created,) = response.topics
    assert created.error_code is ErrorCode.none
    topic_id: uuid.UUID = created.topic_id
    return topic_id


async def test_every_version_of_every_api_is_answered(broker: BrokerNode) -> None:
    async with KafkaWire(broker.port("PLAINTEXT")) as wire:
        topic_id = await create(wire, "t")
        for api_key, version in VERSIONS:
            values = values_of(api_key, topic_id)
            if api_key is ApiKey.JOIN_GROUP:
                # A group of its own: an older one would wait for its first member.
                values["group_id"] = f"joined with v{version}"
            response = await wire.ask(api_key, version, values)
            codes = set(error_codes(response)) - {ErrorCode.none}
            expected = {EXPECTED[api_key]} if api_key in EXPECTED else set()
            if api_key is ApiKey.JOIN_GROUP and version >= 4:
                expected = {ErrorCode.member_id_required}
            assert codes == expected, (api_key, version, response)


async def test_exactly_what_is_answered_is_advertised(broker: BrokerNode) -> None:
    async with KafkaWire(broker.port("PLAINTEXT")) as wire:
        values = values_of(ApiKey.API_VERSIONS, uuid.UUID(int=0))
        response = await wire.ask(ApiKey.API_VERSIONS, 4, values)
    advertised = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    # As Kafka does, for the sake of old clients.
    assert advertised.pop(ApiKey.PRODUCE) == (0, SUPPORTED[ApiKey.PRODUCE].highest)
    assert advertised == {
        int(api_key): tuple(versions)
        for api_key, versions in SUPPORTED.items()
        if api_key is not ApiKey.PRODUCE
    }


async def test_an_unknown_version_of_api_versions_is_answered_so_that_the_client_can_ask_again(
    broker: BrokerNode,
) -> None:
    async with KafkaWire(broker.port("PLAINTEXT")) as wire:
        await wire.send_bytes(b"\x00\x12\x00\x63" + (0).to_bytes(4, "big") + b"\xff\xff\x00")
        response = await wire.receive(ApiKey.API_VERSIONS, 0)
        assert response.error_code is ErrorCode.unsupported_version
        assert [each.api_key for each in response.api_keys] == [ApiKey.API_VERSIONS]
        values = values_of(ApiKey.API_VERSIONS, uuid.UUID(int=0))
        again = await wire.ask(ApiKey.API_VERSIONS, 3, values)
        assert again.error_code is ErrorCode.none


@pytest.mark.parametrize(
    "frame",
    [
        b"\x7f\xff\x00\x00" + bytes(20),
        b"\x00\x03\x00\x63" + bytes(20),
        b"\x00\x03\x00\x0c" + bytes(3),
        b"",
    ],
    ids=["unknown api", "unknown version", "cut", "empty"],
)
async def test_what_is_no_request_closes_the_connection_and_nothing_else(
    broker: BrokerNode, frame: bytes
) -> None:
    async with (
        KafkaWire(broker.port("PLAINTEXT")) as wire,
        KafkaWire(broker.port("PLAINTEXT")) as other,
    ):
        await wire.send_bytes(frame)
        with pytest.raises(EOFError):
            await wire.receive_bytes()
        values = values_of(ApiKey.API_VERSIONS, uuid.UUID(int=0))
        assert (await other.ask(ApiKey.API_VERSIONS, 0, values)).api_keys


async def test_pipelined_requests_are_answered_in_order(broker: BrokerNode) -> None:
    async with KafkaWire(broker.port("PLAINTEXT")) as wire:
        topic_id = await create(wire, "t")
        slow = {**values_of(ApiKey.FETCH, topic_id), "min_bytes": 1, "max_wait": SECOND * 0.2}
        await wire.send(ApiKey.FETCH, 12, slow)
        await wire.send(ApiKey.METADATA, 12, values_of(ApiKey.METADATA, topic_id))
        await wire.send(ApiKey.HEARTBEAT, 4, MEMBER)
        fetched = await wire.receive(ApiKey.FETCH, 12)
        assert fetched.responses[0].partitions[0].records == b""
        assert (await wire.receive(ApiKey.METADATA, 12)).topics[0].name == "t"
        heartbeat = await wire.receive(ApiKey.HEARTBEAT, 4)
        assert heartbeat.error_code is ErrorCode.unknown_member_id
