"""The manager as a whole: what brokers announce and what operators ask, turned into registrations and tasks."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from aquifer_core.errors import InvalidRequestError
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_core.ports import Clock
from aquifer_core.task_pauses import PauseTarget

from aquifer_manager.domain.assignment import PartitionRole, RegisteredPartition
from aquifer_manager.domain.expiration_task import ExpirationTask
from aquifer_manager.domain.log_observer import LogObserver
from aquifer_manager.domain.partition_deletions import PartitionDeletions
from aquifer_manager.domain.partition_view import CopyLag, PartitionView, lag_of, view_of
from aquifer_manager.domain.paused_tasks import PausedTasks
from aquifer_manager.domain.ports import BrokerConnections
from aquifer_manager.domain.quiet_retention import QuietRetention
from aquifer_manager.domain.registry import Registry
from aquifer_manager.domain.scheduler import Scheduler
from aquifer_manager.domain.scrub_task import ScrubTask
from aquifer_manager.domain.tasks import TaskKey, TaskOutcome, TaskState, TaskType
from aquifer_manager.domain.topic_config import TopicConfig
from aquifer_manager.domain.why import Explainer
from aquifer_manager.domain.why_reasons import Explanation

__all__ = ["ManagerParts", "RemoteLogManager"]

logger = structlog.get_logger(__name__)

_WATCH_INTERVAL_S: Final = 1.0
_VIEWS_AT_A_TIME: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerParts:
    """What a manager is put together from."""

    registry: Registry
    scheduler: Scheduler
    brokers: BrokerConnections
    deletions: PartitionDeletions
    expiration: ExpirationTask
    quiet: QuietRetention
    scrub: ScrubTask
    observer: LogObserver
    explainer: Explainer
    pauses: PausedTasks
    clock: Clock


class RemoteLogManager:
    """Answers announcements at once: they register and schedule, and never wait for remote storage (SR-15, SR-36).

    Only the deletion of partitions waits for metadata, since it would be lost otherwise.
    """

    def __init__(self, parts: ManagerParts) -> None:
        self._registry = parts.registry
        self._scheduler = parts.scheduler
        self._brokers = parts.brokers
        self._deletions = parts.deletions
        self._expiration = parts.expiration
        self._scrub = parts.scrub
        self._observer = parts.observer
        self._explainer = parts.explainer
        self._pauses = parts.pauses
        self._pauses.watch(self._resumed)
        self._clock = parts.clock

    def register_broker(self, broker_id: int, incarnation: str, address: str) -> int:
        """Registers a broker; idempotent for one incarnation. Answers the length of its lease in ms."""
        changed = self._registry.register(broker_id, incarnation, address)
        self._reschedule(changed)
        logger.info("broker_registered", broker_id=broker_id, address=address)
        return self._registry.lease_ms

    def heartbeat(
        self, broker_id: int, incarnation: str, rolled: Sequence[TopicIdPartition]
    ) -> int:
        """Renews a lease; partitions with rolled segments are due for copying. Answers the length of the lease in ms.

        Raises:
            RemoteResourceNotFoundError: not registered here (BROKER_NOT_FOUND).
        """
        self._registry.keep(broker_id, incarnation)
        self._scheduler.due_now(TaskKey(tip, TaskType.COPY) for tip in rolled)
        return self._registry.lease_ms

    def on_leadership_change(
        self,
        broker_id: int,
        incarnation: str,
        leaders: Sequence[PartitionRole],
        followers: Sequence[PartitionRole],
    ) -> None:
        """Registers what a broker leads and follows now. Idempotent.

        Raises:
            RemoteResourceNotFoundError: not registered here (BROKER_NOT_FOUND).
        """
        self._registry.broker(broker_id, incarnation)
        changed = self._registry.follow(broker_id, followers)
        led = self._registry.lead(broker_id, leaders)
        changed |= led
        self._reschedule(changed)
        # A leader that is gone, or a fence, has left its back-off behind.
        self._scheduler.due_now(
            TaskKey(tip, kind) for tip in led for kind in (TaskType.COPY, TaskType.EXPIRATION)
        )
        logger.info(
            "leadership_announced",
            broker_id=broker_id,
            leaders=len(leaders),
            followers=len(followers),
            taken=len(changed),
        )

    def on_topic_config_change(self, configs: Mapping[KafkaUuid, TopicConfig]) -> None:
        """Takes over settings of topics; their expirations are due at once. Idempotent."""
        for topic_id, config in configs.items():
            changed = self._registry.reconfigure(topic_id, config)
            self._reschedule(changed)
            self._scheduler.due_now(TaskKey(tip, TaskType.EXPIRATION) for tip in changed)

    async def stop_partitions(
        self, broker_id: int, partitions: Sequence[TopicIdPartition], *, delete_remote: bool
    ) -> None:
        """Ends the tasks of partitions; a copy in flight completes first. Deletion is a job that goes on by itself. Idempotent.

        Raises:
            RemoteStorageUnavailableError: metadata could not be told of the deletion; the tasks have ended all the same.
        """
        changed = self._registry.stop(broker_id, partitions)
        self._reschedule(changed)
        if delete_remote:
            await self._deletions.begin(broker_id, partitions)
        logger.info(
            "partitions_stopped",
            broker_id=broker_id,
            partitions=len(partitions),
            delete_remote=delete_remote,
        )

    def delete_records(self, tip: TopicIdPartition) -> None:
        """The log start was raised: cleaning is due at once, and this does not wait for it (SR-25)."""
        self._scheduler.due_now([TaskKey(tip, TaskType.EXPIRATION)])

    async def scrub(
        self, tip: TopicIdPartition, *, deep: bool = True, heal: bool = False
    ) -> TaskOutcome:
        """Compares metadata, listing and content of any partition, also of a deleted one. See `ScrubTask.run`."""
        return await self._scrub.run(TaskKey(tip, TaskType.SCRUB), deep=deep, heal=heal)

    async def run_task(
        self, tip: TopicIdPartition, kind: TaskType, *, dry_run: bool
    ) -> TaskOutcome:
        """Runs a task of a partition now and answers what it did, or would do.

        Raises:
            RemoteResourceNotFoundError: not registered here, or without such a task (PARTITION_NOT_FOUND).
            InvalidRequestError: a dry run of something else than an expiration.
            AquiferError: what the run failed with.
        """
        self._registry.require(tip)
        if dry_run and kind is not TaskType.EXPIRATION:
            raise InvalidRequestError("only expirations and scrubs have a dry run")
        if dry_run:
            return await self._expiration.dry_run(TaskKey(tip, kind))
        keys = [key for key in self._registry.tasks(tip) if key.type is kind]
        outcomes = [
            await self._scheduler.run_now(key) for key in sorted(keys) or [TaskKey(tip, kind)]
        ]
        return TaskOutcome(
            actions=tuple(action for each in outcomes for action in each.actions),
            more_work=any(each.more_work for each in outcomes),
        )

    async def pause_tasks(
        self, targets: Collection[PauseTarget], *, paused_by: str = "", reason: str = ""
    ) -> bool:
        """Begins no copies and expirations of these; idempotent. See `PausedTasks.pause`."""
        return await self._pauses.pause(targets, paused_by=paused_by, reason=reason)

    async def resume_tasks(self, targets: Collection[PauseTarget]) -> bool:
        """Ends a pause; idempotent. See `PausedTasks.resume`."""
        return await self._pauses.resume(targets)

    async def describe_partition(self, tip: TopicIdPartition) -> PartitionView:
        """State of a partition, with its log as it is now when the broker answers.

        Raises:
            RemoteResourceNotFoundError: not registered here (PARTITION_NOT_FOUND).
        """
        partition = self._registry.require(tip)
        await self._observer.observe_one(tip)
        return self._view(partition)

    async def explain(
        self,
        tip: TopicIdPartition,
        *,
        offset: int | None = None,
        segment_id: KafkaUuid | None = None,
    ) -> list[Explanation]:
        """Why segments of a partition are local, not deleted or unreadable: of a segment, an offset, or what is most overdue.

        Raises:
            RemoteResourceNotFoundError: metadata does not have the segment (SEGMENT_NOT_FOUND).
            InvalidRequestError: an offset and a segment were given.
        """
        if offset is not None and segment_id is not None:
            raise InvalidRequestError("give an offset or a segment, not both")
        if segment_id is not None:
            return await self._explainer.explain_segment(tip, segment_id)
        if offset is not None:
            return await self._explainer.explain_offset(tip, offset)
        return await self._explainer.explain_partition(tip)

    def list_partitions(self, topic: str = "") -> Iterator[PartitionView]:
        """State of all partitions, or those of one topic, as last observed; each is looked at when it is asked for."""
        return map(self._view, self._registry.partitions(topic))

    def lag_by_topic(self) -> dict[str, CopyLag]:
        """Lag of all led partitions of each topic together; the age is the oldest one's."""
        now_ms = self._clock.now_ms()
        found: dict[str, CopyLag] = {}
        for partition in self._registry.partitions():
            if partition.leader_broker_id is not None:
                topic = partition.topic_id_partition.topic
                found[topic] = found.get(topic, CopyLag()) + lag_of(partition, now_ms)
        return found

    def task_states(self) -> list[TaskState]:
        """State of all tasks."""
        return self._scheduler.all_states()

    async def watch_partitions(self, topic: str = "") -> AsyncGenerator[list[PartitionView], None]:
        """All partitions, or those of one topic, then those whose state changed, without end. Mere passing of time is no change."""
        seen: dict[TopicIdPartition, PartitionView] = {}
        while True:
            changed = []
            for number, view in enumerate(self.list_partitions(topic), 1):
                if number % _VIEWS_AT_A_TIME == 0:
                    await asyncio.sleep(0)  # others have their turn
                known = seen.get(view.topic_id_partition)
                if known is None or known.timeless() != view.timeless():
                    changed.append(view)
                    seen[view.topic_id_partition] = view
            if changed:
                yield changed
            await self._clock.sleep(_WATCH_INTERVAL_S)

    async def expire_leases(self) -> None:
        """Forgets brokers that did not renew their lease, and closes connections to where no broker is any more."""
        gone, changed = self._registry.expire()
        self._reschedule(changed)
        for broker in gone:
            logger.warning("broker_lease_expired", broker_id=broker.broker_id)
        for address in self._registry.take_left_addresses():
            await self._brokers.forget(address)

    def _reschedule(self, changed: Collection[TopicIdPartition]) -> None:
        for tip in changed:
            self._scheduler.set_tasks(tip, self._registry.tasks(tip))

    def _resumed(self, targets: Collection[PauseTarget]) -> None:
        registered = (partition.topic_id_partition for partition in self._registry.partitions())
        self._scheduler.resumed(tip for tip in registered if tip in targets or tip.topic in targets)

    def _view(self, partition: RegisteredPartition) -> PartitionView:
        tip = partition.topic_id_partition
        keys = [*sorted(partition.tasks()), TaskKey(tip, TaskType.PARTITION_DELETION)]
        return view_of(
            partition,
            self._scheduler.states(keys),
            pauses=self._pauses.of(tip),
            now_ms=self._clock.now_ms(),
        )
