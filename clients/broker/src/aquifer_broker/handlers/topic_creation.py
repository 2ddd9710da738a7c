"""Creation of topics: checks of this side, then the metadata service."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Final, Self

import structlog
from aquifer_core.errors import ErrorReason, InvalidConfigurationError
from kio.schema.errors import ErrorCode

from aquifer_broker.cluster.ports import NewTopic, TopicResult
from aquifer_broker.config.topic_config import validate_topic_configs
from aquifer_broker.handlers.error_codes import error_code_of, error_code_of_reason
from aquifer_broker.handlers.services import BrokerServices

__all__ = ["TopicCreation", "check_topic_name"]

logger = structlog.get_logger(__name__)

_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_VIEW_WAIT_S: Final = 2.0
_AUTOMATIC_WAIT_S: Final = 2.0


def check_topic_name(name: str) -> str | None:
    """What is wrong with a topic's name; None: nothing (Kafka's `Topic.validate`)."""
    if name in (".", ".."):
        return f"Topic name cannot be {name!r}"
    if not _NAME.fullmatch(name):
        return f"Topic name {name!r} is illegal: 1 to 249 characters out of ASCII letters, digits, '.', '_' and '-'"
    return None


class TopicCreation:
    """Creates topics, on request and by asking for their metadata; an async context manager, which ends what is under way."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._automatic: dict[str, asyncio.Task[dict[str, ErrorCode]]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        tasks = set(self._automatic.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def create(
        self, topics: Sequence[NewTopic], *, validate_only: bool, timeout_s: float
    ) -> list[TopicResult]:
        """Outcomes in the order given; waits a little until this broker has opened what it leads of them.

        Raises:
            UnavailableError: the metadata service does not answer.
        """
        refused = [self._refuse(topic) for topic in topics]
        good = [topic for topic, no in zip(topics, refused, strict=True) if no is None]
        made: list[TopicResult] = []
        if good:
            async with asyncio.timeout(timeout_s):
                made = await self._services.metadata.create_topics(
                    good, validate_only=validate_only
                )
            if not validate_only:
                await self._await_view(made, timeout_s)
        results = iter(made)
        return [no if no is not None else next(results) for no in refused]

    async def create_automatically(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        """Creates topics with the broker's defaults; what to answer for those that are not there yet.

        Who asks is not kept for long: its connection, producing included, waits behind the answer. The creation goes on.
        """
        new = [name for name in dict.fromkeys(names) if name not in self._automatic]
        if new:
            task = asyncio.create_task(self._create_by_name(new), name="creation of topics")
            self._automatic.update(dict.fromkeys(new, task))
            task.add_done_callback(lambda _: [self._automatic.pop(name) for name in new])
        tasks = {name: self._automatic[name] for name in names}
        # What was begun before has been waited for once.
        await asyncio.wait(set(tasks.values()), timeout=_AUTOMATIC_WAIT_S if new else 0)
        return {
            name: task.result()[name] if task.done() else ErrorCode.leader_not_available
            for name, task in tasks.items()
        }

    async def _create_by_name(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        topics = [NewTopic(name=name, num_partitions=-1, replication_factor=-1) for name in names]
        timeout_s = self._services.config.request_timeout_ms / 1000
        try:
            results = await self.create(
                self.with_defaults(topics), validate_only=False, timeout_s=timeout_s
            )
        except Exception as error:
            logger.warning("topic_not_created", topics=list(names), error=str(error))
            code = error_code_of(error, unavailable=ErrorCode.leader_not_available)
            return dict.fromkeys(names, code)
        return {result.name: _automatic_code(result) for result in results}

    def with_defaults(self, topics: Sequence[NewTopic]) -> list[NewTopic]:
        """The same topics with -1 replaced by this broker's defaults."""
        return [
            NewTopic(
                name=topic.name,
                num_partitions=self._services.config.num_partitions
                if topic.num_partitions == -1 and not topic.assignments
                else topic.num_partitions,
                replication_factor=self._services.config.default_replication_factor
                if topic.replication_factor == -1 and not topic.assignments
                else topic.replication_factor,
                assignments=topic.assignments,
                configs=topic.configs,
            )
            for topic in topics
        ]

    def check_configs(self, configs: Mapping[str, str | None]) -> None:
        """Checks the configs of a new topic.

        Raises:
            InvalidConfigurationError: one is refused (SR-12).
        """
        validate_topic_configs(
            configs,
            defaults=self._services.config.log_defaults,
            remote_storage_available=self._services.config.remote_storage_enabled,
        )

    def _refuse(self, topic: NewTopic) -> TopicResult | None:
        wrong = check_topic_name(topic.name)
        if wrong is not None:
            return TopicResult(name=topic.name, reason=ErrorReason.INVALID_TOPIC, message=wrong)
        try:
            self.check_configs(topic.configs)
        except InvalidConfigurationError as error:
            return TopicResult(name=topic.name, reason=error.reason, message=error.message)
        return None

    async def _await_view(self, results: Sequence[TopicResult], timeout_s: float) -> None:
        made = [each.topic_id for each in results if each.reason is None and each.topic_id]
        limit_s = min(timeout_s, _VIEW_WAIT_S)
        view = self._services.view
        if await view.wait_until(
            lambda: all(view.topic_by_id(topic_id) is not None for topic_id in made), limit_s
        ):
            await self._services.partitions.wait_settled(limit_s)


def _automatic_code(result: TopicResult) -> ErrorCode:
    if result.reason in (None, ErrorReason.TOPIC_ALREADY_EXISTS):
        return ErrorCode.leader_not_available
    return error_code_of_reason(result.reason)
