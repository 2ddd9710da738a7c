"""OffsetCommit, OffsetFetch and OffsetDelete."""

from collections.abc import Sequence
from typing import Any

import structlog
from kio.schema.errors import ErrorCode

from aquifer_broker.cluster.ports import GroupOffset
from aquifer_broker.coordination.group_values import GroupState, MemberIdentity
from aquifer_broker.coordination.subscriptions import subscribed_topics
from aquifer_broker.handlers.error_codes import error_code_of
from aquifer_broker.handlers.services import BrokerServices, topic_key
from aquifer_broker.protocol.dispatch import Answer, Call

__all__ = ["OffsetCommitHandler", "OffsetDeleteHandler", "OffsetFetchHandler"]

logger = structlog.get_logger(__name__)


class OffsetCommitHandler:
    """Answers OffsetCommit v2 to v10."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    async def __call__(self, call: Call) -> Answer:
        """Commits what is valid; all of it shares one outcome."""
        body = call.body
        offsets: list[GroupOffset] = []
        codes = {
            (place, each.partition_index): self._take(requested, each, offsets)
            for place, requested in enumerate(body.topics)
            for each in requested.partitions
        }
        outcome = await self._commit(body, offsets)
        return {
            "topics": [
                {
                    **topic_key(requested),
                    "partitions": [
                        {
                            "partition_index": each.partition_index,
                            "error_code": codes[place, each.partition_index] or outcome,
                        }
                        for each in requested.partitions
                    ],
                }
                for place, requested in enumerate(body.topics)
            ]
        }

    def _take(self, requested: Any, each: Any, offsets: list[GroupOffset]) -> ErrorCode:
        topic = self._services.topic_of(requested)
        if topic is None and hasattr(requested, "topic_id"):
            return ErrorCode.unknown_topic_id
        if topic is None or topic.partition(each.partition_index) is None:
            return ErrorCode.unknown_topic_or_partition
        metadata = each.committed_metadata or ""
        if len(metadata) > self._services.config.offset_metadata_max_bytes:
            return ErrorCode.offset_metadata_too_large
        offsets.append(
            GroupOffset(
                topic=topic.name,
                partition=each.partition_index,
                offset=each.committed_offset,
                leader_epoch=getattr(each, "committed_leader_epoch", -1),
                metadata=metadata,
                commit_timestamp_ms=self._services.clock.now_ms(),
            )
        )
        return ErrorCode.none

    async def _commit(self, body: Any, offsets: Sequence[GroupOffset]) -> ErrorCode:
        identity = MemberIdentity(
            member_id=body.member_id, group_instance_id=getattr(body, "group_instance_id", None)
        )
        try:
            return await self._services.groups.commit(
                body.group_id, identity, body.generation_id_or_member_epoch, offsets
            )
        except Exception as error:
            logger.warning("offsets_not_committed", group=body.group_id, error=str(error))
            return error_code_of(error, unavailable=ErrorCode.coordinator_not_available)


class OffsetFetchHandler:
    """Answers OffsetFetch v1 to v10."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    async def __call__(self, call: Call) -> Answer:
        """Offsets of one group, or from v8 on of several; -1 where none is committed."""
        body = call.body
        if hasattr(body, "groups"):
            return {"groups": [await self._group(each) for each in body.groups]}
        answer = await self._group(body)
        error = answer["error_code"]
        # v1 has no error of the whole answer.
        if call.version == 1 and error is not ErrorCode.none:
            for topic in answer["topics"]:
                for partition in topic["partitions"]:
                    partition["error_code"] = error
        return {"error_code": error, "topics": answer["topics"]}

    async def _group(self, asked: Any) -> dict[str, Any]:
        error = self._services.groups.refusal(asked.group_id)
        found: list[GroupOffset] = []
        if error is ErrorCode.none:
            try:
                found = await self._fetch(asked)
            except Exception as failure:
                logger.warning("offsets_not_fetched", group=asked.group_id, error=str(failure))
                error = error_code_of(failure, unavailable=ErrorCode.coordinator_load_in_progress)
        topics = self._asked_topics(asked, found) if asked.topics is not None else self._all(found)
        return {"group_id": asked.group_id, "topics": topics, "error_code": error}

    async def _fetch(self, asked: Any) -> list[GroupOffset]:
        if asked.topics is None:
            return await self._services.groups.offsets.fetch_offsets(asked.group_id, None)
        partitions = [
            (topic.name, partition)
            for requested in asked.topics
            if (topic := self._services.topic_of(requested)) is not None
            for partition in requested.partition_indexes
        ]
        if not partitions:
            return []
        return await self._services.groups.offsets.fetch_offsets(asked.group_id, partitions)

    def _asked_topics(self, asked: Any, found: Sequence[GroupOffset]) -> list[dict[str, Any]]:
        by_partition = {(each.topic, each.partition): each for each in found}
        topics = []
        for requested in asked.topics:
            topic = self._services.topic_of(requested)
            unknown_id = topic is None and hasattr(requested, "topic_id")
            code = ErrorCode.unknown_topic_id if unknown_id else ErrorCode.none
            name = topic.name if topic is not None else ""
            topics.append(
                {
                    **topic_key(requested),
                    "partitions": [
                        _partition(index, by_partition.get((name, index)), code)
                        for index in requested.partition_indexes
                    ],
                }
            )
        return topics

    def _all(self, found: Sequence[GroupOffset]) -> list[dict[str, Any]]:
        by_topic: dict[str, list[dict[str, Any]]] = {}
        for each in found:
            by_topic.setdefault(each.topic, []).append(
                _partition(each.partition, each, ErrorCode.none)
            )
        topics = []
        for name, partitions in by_topic.items():
            topic = self._services.view.topic(name)
            # Offsets of a deleted topic are of no use to anybody.
            if topic is not None:
                topics.append({"name": name, "topic_id": topic.topic_id, "partitions": partitions})
        return topics


class OffsetDeleteHandler:
    """Answers OffsetDelete v0 (KIP-496)."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    async def __call__(self, call: Call) -> Answer:
        """Deletes offsets of topics that no member consumes."""
        body = call.body
        asked = [
            (topic.name, each.partition_index) for topic in body.topics for each in topic.partitions
        ]
        try:
            groups = self._services.groups
            async with groups.writing(body.group_id):
                coordination = groups.coordination(body.group_id)
                error, subscribed = await self._refusal(body.group_id)
                free = [each for each in asked if each[0] not in subscribed]
                if error is ErrorCode.none and free:
                    await groups.delete_offsets(body.group_id, free, coordination)
        except Exception as failure:
            logger.warning("offsets_not_deleted", group=body.group_id, error=str(failure))
            error = error_code_of(failure, unavailable=ErrorCode.coordinator_not_available)
        if error is not ErrorCode.none:
            return {"error_code": error, "topics": ()}
        in_use = ErrorCode.group_subscribed_to_topic
        return {
            "error_code": ErrorCode.none,
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {
                            "partition_index": each.partition_index,
                            "error_code": in_use if topic.name in subscribed else ErrorCode.none,
                        }
                        for each in topic.partitions
                    ],
                }
                for topic in body.topics
            ],
        }

    async def _refusal(self, group_id: str) -> tuple[ErrorCode, set[str]]:
        groups = self._services.groups
        group = groups.get(group_id)
        if group is None:
            known = await groups.offsets.fetch_offsets(group_id, None)
            return ErrorCode.none if known else ErrorCode.group_id_not_found, set()
        if group.state is GroupState.EMPTY:
            return ErrorCode.none, set()
        if group.protocol_type != "consumer":
            return ErrorCode.non_empty_group, set()
        return ErrorCode.none, subscribed_topics(group)


def _partition(index: int, found: GroupOffset | None, code: ErrorCode) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": found.offset if found else -1,
        "committed_leader_epoch": found.leader_epoch if found else -1,
        "metadata": found.metadata if found else "",
        "error_code": code,
    }
