"""Metadata, ApiVersions, DescribeCluster and FindCoordinator: who is where."""

import re
from typing import Any, Final

import structlog
from aquifer_core.ids import KafkaUuid
from kio.schema.errors import ErrorCode

from aquifer_broker.cluster.view import NO_LEADER, BrokerInfo, PartitionInfo, TopicInfo
from aquifer_broker.handlers.services import BrokerServices
from aquifer_broker.handlers.topic_creation import TopicCreation
from aquifer_broker.protocol.dispatch import Answer, Call
from aquifer_broker.protocol.versions import ADVERTISED_MIN_VERSIONS, SUPPORTED

__all__ = ["ApiVersionsHandler", "DescribeClusterHandler", "MetadataHandler", "broker_entry"]

logger = structlog.get_logger(__name__)

_INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_BROKERS_ENDPOINT: Final = 1


class ApiVersionsHandler:
    """Answers ApiVersions v0 to v4 with exactly what is implemented."""

    async def __call__(self, call: Call) -> Answer:
        """Lists the version table."""
        error = ErrorCode.none
        if call.version >= 3:
            texts = (call.body.client_software_name, call.body.client_software_version)
            if not all(_SOFTWARE.fullmatch(text) for text in texts):
                error = ErrorCode.invalid_request
        return {
            "error_code": error,
            "api_keys": [
                {
                    "api_key": api_key,
                    "min_version": ADVERTISED_MIN_VERSIONS.get(api_key, versions.lowest),
                    "max_version": versions.highest,
                }
                for api_key, versions in SUPPORTED.items()
            ],
        }


class MetadataHandler:
    """Answers Metadata v0 to v13."""

    def __init__(self, services: BrokerServices, creation: TopicCreation) -> None:
        self._services = services
        self._creation = creation

    async def __call__(self, call: Call) -> Answer:
        """Describes brokers and topics; unknown topics are created when both sides allow it."""
        view = self._services.view
        listener = call.client.listener
        brokers = [broker_entry(broker, listener) for broker in view.live_brokers()]
        return {
            "brokers": [broker for broker in brokers if broker is not None],
            "cluster_id": view.cluster_id,
            # Every broker takes administrative requests; the nearest is the one asked.
            "controller_id": self._services.config.node_id,
            "topics": await self._topics(call),
            "error_code": ErrorCode.none,
        }

    async def _topics(self, call: Call) -> list[dict[str, Any]]:
        requested = call.body.topics
        if requested is None or (call.version == 0 and not requested):
            topics = self._services.view.topics.values()
            return [self._describe(topic, call.client.listener) for topic in topics]
        missing = [each.name for each in requested if self._is_missing(each)]
        errors: dict[str, ErrorCode] = {}
        may_create = self._services.config.auto_create_topics and getattr(
            call.body, "allow_auto_topic_creation", True
        )
        if missing and may_create:
            errors = await self._creation.create_automatically(missing)
        return [self._one(each, call.client.listener, errors) for each in requested]

    def _is_missing(self, requested: Any) -> bool:
        return requested.name is not None and self._services.topic_of(requested) is None

    def _one(self, requested: Any, listener: str, errors: dict[str, ErrorCode]) -> dict[str, Any]:
        topic = self._services.topic_of(requested)
        if topic is not None:
            return self._describe(topic, listener)
        topic_id = getattr(requested, "topic_id", None)
        if topic_id is not None:
            error = ErrorCode.unknown_topic_id
        else:
            error = errors.get(requested.name, ErrorCode.unknown_topic_or_partition)
        # Kafka sent an empty name for an unknown id until names became nullable in v12.
        name = requested.name if requested.name is not None else ""
        return {"error_code": error, "name": name, "topic_id": topic_id, "partitions": ()}

    def _describe(self, topic: TopicInfo, listener: str) -> dict[str, Any]:
        return {
            "error_code": ErrorCode.none,
            "name": topic.name,
            "topic_id": topic.topic_id,
            "is_internal": topic.name in _INTERNAL_TOPICS,
            "partitions": [self._partition(each, listener) for each in topic.partitions],
        }

    def _partition(self, partition: PartitionInfo, listener: str) -> dict[str, Any]:
        brokers = self._services.view.brokers
        leader = brokers.get(partition.leader)
        error = ErrorCode.none
        if partition.leader == NO_LEADER or leader is None or not leader.alive:
            error = ErrorCode.leader_not_available
        elif leader.endpoint(listener) is None:
            error = ErrorCode.listener_not_found
        dead = [
            each for each in partition.replicas if each not in brokers or not brokers[each].alive
        ]
        return {
            "error_code": error,
            "partition_index": partition.partition,
            "leader_id": partition.leader if error is ErrorCode.none else NO_LEADER,
            "leader_epoch": partition.leader_epoch,
            "replica_nodes": partition.replicas,
            "isr_nodes": partition.isr,
            "offline_replicas": dead,
        }


class DescribeClusterHandler:
    """Answers DescribeCluster v0 to v2."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    async def __call__(self, call: Call) -> Answer:
        """Describes brokers as Metadata does, and fenced ones when asked for."""
        view = self._services.view
        if getattr(call.body, "endpoint_type", _BROKERS_ENDPOINT) != _BROKERS_ENDPOINT:
            return {
                "error_code": ErrorCode.mismatched_endpoint_type,
                "error_message": "this is a broker endpoint",
                "cluster_id": view.cluster_id or "",
                "brokers": (),
            }
        fenced_too = getattr(call.body, "include_fenced_brokers", False)
        brokers = view.brokers.values() if fenced_too else view.live_brokers()
        entries = []
        for broker in brokers:
            entry = broker_entry(broker, call.client.listener)
            if entry is not None:
                entry["broker_id"] = entry.pop("node_id")
                entries.append({**entry, "is_fenced": not broker.alive})
        return {
            "error_code": ErrorCode.none,
            "cluster_id": view.cluster_id or str(KafkaUuid.ZERO),
            "controller_id": self._services.config.node_id,
            "brokers": entries,
        }


def broker_entry(broker: BrokerInfo, listener: str) -> dict[str, Any] | None:
    """A broker as reached through a listener; None: not reachable there."""
    endpoint = broker.endpoint(listener)
    if endpoint is None:
        return None
    return {
        "node_id": broker.broker_id,
        "host": endpoint.host,
        "port": endpoint.port,
        "rack": broker.rack or None,
    }
