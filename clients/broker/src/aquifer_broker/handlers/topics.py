"""CreateTopics, DeleteTopics and CreatePartitions."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import structlog
from aquifer_core.errors import AquiferError
from aquifer_core.ids import KafkaUuid
from kio.schema.errors import ErrorCode

from aquifer_broker.cluster.ports import NewPartitions, NewTopic, TopicResult
from aquifer_broker.handlers.config_entries import topic_entries
from aquifer_broker.handlers.config_resources import dynamic_of
from aquifer_broker.handlers.error_codes import error_code_of, error_code_of_reason
from aquifer_broker.handlers.services import BrokerServices
from aquifer_broker.handlers.topic_creation import TopicCreation
from aquifer_broker.protocol.dispatch import Answer, Call
from aquifer_broker.protocol.entities import millis

__all__ = ["CreatePartitionsHandler", "CreateTopicsHandler", "DeleteTopicsHandler"]

logger = structlog.get_logger(__name__)

_Named = tuple[str | None, KafkaUuid | None]
"""A topic as a request to delete it names it."""

_CREATED_CONFIG: Final = ("name", "value", "read_only", "config_source", "is_sensitive")


class CreateTopicsHandler:
    """Answers CreateTopics v2 to v7."""

    def __init__(self, services: BrokerServices, creation: TopicCreation) -> None:
        self._services = services
        self._creation = creation

    async def __call__(self, call: Call) -> Answer:
        """Creates what is well-formed; every topic gets an outcome of its own."""
        body = call.body
        counts = Counter(topic.name for topic in body.topics)
        wanted = self._creation.with_defaults(
            [_new_topic(topic) for topic in body.topics if counts[topic.name] == 1]
        )
        twice = [
            _failed(name, ErrorCode.invalid_request, "the topic is named twice")
            for name, count in counts.items()
            if count > 1
        ]
        try:
            results = await self._creation.create(
                wanted, validate_only=body.validate_only, timeout_s=_timeout_s(self._services, body)
            )
        except (AquiferError, TimeoutError) as error:
            logger.warning("topics_not_created", error=str(error))
            code = error_code_of(error)
            return {
                "topics": [*(_failed(topic.name, code, str(error)) for topic in wanted), *twice]
            }
        answers = [
            self._answer(topic, result) for topic, result in zip(wanted, results, strict=True)
        ]
        return {"topics": answers + twice}

    def _answer(self, topic: NewTopic, result: TopicResult) -> dict[str, Any]:
        if result.reason is not None:
            return _failed(topic.name, error_code_of_reason(result.reason), result.message)
        partitions = len(topic.assignments) or topic.num_partitions
        replicas = next(
            (len(each) for each in topic.assignments.values()), topic.replication_factor
        )
        return {
            "name": topic.name,
            "topic_id": result.topic_id or KafkaUuid.ZERO,
            "error_code": ErrorCode.none,
            "error_message": None,
            "num_partitions": partitions,
            "replication_factor": replicas,
            "configs": [
                {name: entry[name] for name in _CREATED_CONFIG}
                for entry in topic_entries(
                    self._services.config, dynamic_of(self._services), topic.configs
                )
            ],
        }


class DeleteTopicsHandler:
    """Answers DeleteTopics v1 to v6."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    async def __call__(self, call: Call) -> Answer:
        """Deletes by name or, from v6 on, by id."""
        asked = _asked(call.body)
        counts = Counter(asked)
        answers = {
            each: _deletion(*each, ErrorCode.invalid_request, "name a topic once, by name or by id")
            for each in asked
            if counts[each] > 1 or (each[0] is None) == (each[1] is None)
        }
        good = [each for each in asked if each not in answers]
        if good:
            answers.update(zip(good, await self._deleted(call.body, good), strict=True))
        return {"responses": [answers[each] for each in asked]}

    async def _deleted(self, body: Any, asked: Sequence[_Named]) -> list[dict[str, Any]]:
        if not self._services.config.delete_topics_allowed:
            disabled = ErrorCode.topic_deletion_disabled
            return [_deletion(*each, disabled, "delete.topic.enable is false") for each in asked]
        names = [name for name, _ in asked if name is not None]
        ids = [topic_id for _, topic_id in asked if topic_id is not None]
        timeout_s = _timeout_s(self._services, body)
        try:
            async with asyncio.timeout(timeout_s):
                results = await self._services.metadata.delete_topics(names, ids)
        except (AquiferError, TimeoutError) as error:
            logger.warning("topics_not_deleted", error=str(error))
            return [_deletion(*each, error_code_of(error), str(error)) for each in asked]
        await self._await_view(results, timeout_s)
        by_name, by_id = iter(results[: len(names)]), iter(results[len(names) :])
        return [
            self._answer(topic_id, next(by_name if topic_id is None else by_id))
            for _, topic_id in asked
        ]

    def _answer(self, asked_id: KafkaUuid | None, result: TopicResult) -> dict[str, Any]:
        if result.reason is None:
            return _deletion(result.name, result.topic_id, ErrorCode.none, None)
        code = error_code_of_reason(result.reason)
        if asked_id is not None and code is ErrorCode.unknown_topic_or_partition:
            return _deletion(None, asked_id, ErrorCode.unknown_topic_id, result.message)
        return _deletion(result.name, result.topic_id, code, result.message)

    async def _await_view(self, results: Sequence[TopicResult], timeout_s: float) -> None:
        view = self._services.view
        gone = [each.topic_id for each in results if each.reason is None and each.topic_id]
        await view.wait_until(
            lambda: all(view.topic_by_id(topic_id) is None for topic_id in gone),
            min(timeout_s, 2.0),
        )


class CreatePartitionsHandler:
    """Answers CreatePartitions v0 to v3."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    async def __call__(self, call: Call) -> Answer:
        """Adds partitions; the count may only rise."""
        body = call.body
        wanted = [
            NewPartitions(
                name=topic.name,
                total_count=topic.count,
                assignments=[tuple(each.broker_ids) for each in topic.assignments or ()],
            )
            for topic in body.topics
        ]
        try:
            async with asyncio.timeout(_timeout_s(self._services, body)):
                results = await self._services.metadata.create_partitions(
                    wanted, validate_only=body.validate_only
                )
        except (AquiferError, TimeoutError) as error:
            logger.warning("partitions_not_created", error=str(error))
            code = error_code_of(error)
            return {
                "results": [
                    {"name": topic.name, "error_code": code, "error_message": str(error)}
                    for topic in wanted
                ]
            }
        return {
            "results": [
                {
                    "name": result.name,
                    "error_code": error_code_of_reason(result.reason)
                    if result.reason is not None
                    else ErrorCode.none,
                    "error_message": result.message,
                }
                for result in results
            ]
        }


def _new_topic(requested: Any) -> NewTopic:
    return NewTopic(
        name=requested.name,
        num_partitions=requested.num_partitions,
        replication_factor=requested.replication_factor,
        assignments={
            each.partition_index: tuple(each.broker_ids) for each in requested.assignments
        },
        configs={each.name: each.value for each in requested.configs if each.value is not None},
    )


def _asked(body: Any) -> list[_Named]:
    if hasattr(body, "topic_names"):
        return [(name, None) for name in body.topic_names]
    return [
        (each.name, KafkaUuid(each.topic_id.bytes) if each.topic_id else None)
        for each in body.topics
    ]


def _timeout_s(services: BrokerServices, body: Any) -> float:
    """The client's time, at least enough for one call and never longer than ours."""
    ours_ms = services.config.request_timeout_ms
    asked_ms = millis(body.timeout)
    return (min(asked_ms, ours_ms) if asked_ms > 0 else ours_ms) / 1000


def _failed(name: str, code: ErrorCode, message: str | None) -> dict[str, Any]:
    return {
        "name": name,
        "topic_id": KafkaUuid.ZERO,
        "error_code": code,
        "error_message": message,
        "configs": None,
    }


def _deletion(
    name: str | None, topic_id: KafkaUuid | None, code: ErrorCode, message: str | None
) -> dict[str, Any]:
    return {
        "name": name,
        "topic_id": topic_id,
        "error_code": code,
        "error_message": message,
    }
