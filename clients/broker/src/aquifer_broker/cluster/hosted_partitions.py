"""Brings the local logs in line with the cluster metadata, and answers who leads what here."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import structlog
from aquifer_core.ids import TopicIdPartition
from aquifer_rpc.supervised import SupervisedLoop
from kio.schema.errors import ErrorCode

from aquifer_broker.cluster.awaited_logs import AwaitedLog, AwaitedLogs
from aquifer_broker.cluster.view import ClusterChange, ClusterView, PartitionInfo, TopicInfo
from aquifer_broker.config.topic_config import effective_log_config
from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_errors import LogStorageError
from aquifer_broker.log.log_manager import LogManager
from aquifer_broker.log.partition_log import PartitionLog

__all__ = ["HostedPartition", "HostedPartitions", "LeadershipListener"]

logger = structlog.get_logger(__name__)

_RETRY_S: Final = 1.0
_INTERVAL_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedPartition:
    """A partition with a replica on this broker."""

    topic_id_partition: TopicIdPartition
    log: PartitionLog
    info: PartitionInfo
    is_leader: bool

    @property
    def leader_epoch(self) -> int:
        """Epoch of the leader, this broker or another."""
        return self.info.leader_epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipListener:
    """Told of what changed here; must not block."""

    on_hosted: Callable[[HostedPartition], None]
    """The partition is new, has another leader, or its topic's configuration may have changed."""
    on_stopped: Callable[[TopicIdPartition, bool], None]
    """The flag says whether the topic was deleted."""


class HostedPartitions:
    """Follows a `ClusterView`; `loop`, entered by the owner, applies changes in order and retries what fails.

    Attributes:
        awaited: Logs that are not hosted yet because remote storage may have what they lost.
    """

    def __init__(
        self,
        *,
        node_id: int,
        view: ClusterView,
        logs: LogManager,
        defaults: LogConfig,
        remote_storage: bool = False,
    ) -> None:
        """Prepares.

        Args:
            node_id: This broker.
            view: The cluster.
            logs: The local logs.
            defaults: Of topic configs.
            remote_storage: Whether somebody compares the logs in `awaited` with remote storage; without, none is held back.
        """
        self.awaited = AwaitedLogs()
        self._remote_storage = remote_storage
        self._node_id = node_id
        self._view = view
        self._logs = logs
        self._defaults = defaults
        self._hosted: dict[tuple[str, int], HostedPartition] = {}
        self._dirty: dict[str, None] = {}
        self._deleted: list[TopicInfo] = []
        self._listeners: list[LeadershipListener] = []
        self._settled = asyncio.Event()
        self._known_at_start: frozenset[TopicIdPartition] = frozenset()
        self.loop = SupervisedLoop(
            "hosted partitions", self._apply, interval_s=_INTERVAL_S, backoff_max_s=_RETRY_S
        )
        view.on_change(self._changed)

    def add_listener(self, listener: LeadershipListener) -> None:
        """Tells the listener of every change from now on, and of what is hosted already."""
        self._listeners.append(listener)
        for hosted in self._hosted.values():
            listener.on_hosted(hosted)

    def hosted(self) -> Iterable[HostedPartition]:
        """Everything with a replica here."""
        return tuple(self._hosted.values())

    def get(self, topic: str, partition: int) -> HostedPartition | None:
        """A partition with a replica here."""
        return self._hosted.get((topic, partition))

    def leader(
        self, topic: str, partition: int, expected_epoch: int = -1
    ) -> HostedPartition | ErrorCode:
        """The partition if this broker leads it (in the epoch the client expects, -1: any), else what to answer."""
        hosted = self._hosted.get((topic, partition))
        if hosted is None or not hosted.is_leader:
            return self._why_not(topic, partition)
        if expected_epoch in (-1, hosted.info.leader_epoch):
            return hosted
        if expected_epoch < hosted.info.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        return ErrorCode.unknown_leader_epoch

    async def start(self) -> None:
        """Opens the logs that the view assigns to this broker and puts all others aside."""
        known = [
            topic.id_of(each.partition)
            for topic in self._view.topics.values()
            for each in topic.partitions
            if self._node_id in each.replicas
        ]
        self._known_at_start = frozenset(known)
        await self._logs.delete_strays(known)
        self._dirty.update(dict.fromkeys(self._view.topics))
        await self._apply()

    def update_defaults(self, defaults: LogConfig) -> None:
        """Takes over other defaults of topic configs."""
        self._defaults = defaults
        self._dirty.update(dict.fromkeys(self._view.topics))
        self.loop.wake()

    async def wait_settled(self, timeout_s: float) -> bool:
        """Waits until the view known now is applied, and remote storage asked where it may have more; False: not in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()
                while await self.awaited.wait_asked():
                    await self._settled.wait()
        except TimeoutError:
            return False
        return True

    async def confirm(self, awaited: AwaitedLog) -> None:
        """A log that was held back has everything it can have: it is hosted from now on. Idempotent.

        Raises:
            LogStorageError: Its log dir failed.
        """
        await awaited.log.confirm_records()
        tip = awaited.topic_id_partition
        if tip in self.awaited:
            self._settled.clear()
            self.awaited.discard(tip)
            self._dirty[tip.topic] = None
            self.loop.wake()

    def _why_not(self, topic: str, partition: int) -> ErrorCode:
        known = self._view.topic(topic)
        if known is None or known.partition(partition) is None:
            return ErrorCode.unknown_topic_or_partition
        try:
            self._logs.get(topic, partition)
        except LogStorageError:
            return ErrorCode.kafka_storage_error
        return ErrorCode.not_leader_or_follower

    def _changed(self, change: ClusterChange) -> None:
        self._settled.clear()
        self._dirty.update(dict.fromkeys(topic.name for topic in change.topics))
        self._deleted.extend(change.deleted_topics)
        # A leader that was replaced must stop at once, not when its turn comes.
        for topic in change.topics:
            self._step_down(topic)
        for topic in change.deleted_topics:
            for each in topic.partitions:
                self._forget(topic.id_of(each.partition))
        self.loop.wake()

    def _step_down(self, topic: TopicInfo) -> None:
        for each in topic.partitions:
            hosted = self._hosted.get((topic.name, each.partition))
            if hosted is not None and hosted.is_leader and each.leader != self._node_id:
                self._hosted[topic.name, each.partition] = HostedPartition(
                    topic_id_partition=hosted.topic_id_partition,
                    log=hosted.log,
                    info=each,
                    is_leader=False,
                )

    async def _apply(self) -> None:
        while self._deleted:
            topic = self._deleted[0]
            for each in topic.partitions:
                await self._remove(topic.id_of(each.partition), deleted=True)
            self._deleted.pop(0)
        while self._dirty:
            name = next(iter(self._dirty))
            # First: what changes while the topic is applied has to be applied after it.
            del self._dirty[name]
            try:
                if (topic_now := self._view.topic(name)) is not None:
                    await self._apply_topic(topic_now)
            except BaseException:
                self._dirty[name] = None
                raise
        self._settled.set()

    async def _apply_topic(self, topic: TopicInfo) -> None:
        config = effective_log_config(topic.configs, self._defaults)
        self._logs.update_topic_config(topic.name, config)
        for each in topic.partitions:
            topic_id_partition = topic.id_of(each.partition)
            if self._node_id in each.replicas:
                try:
                    await self._host(topic_id_partition, each, config)
                except LogStorageError as error:
                    logger.warning(
                        "partition_offline", partition=str(topic_id_partition), error=str(error)
                    )
            else:
                await self._remove(topic_id_partition, deleted=False)

    async def _host(
        self, topic_id_partition: TopicIdPartition, info: PartitionInfo, config: LogConfig
    ) -> None:
        key = (topic_id_partition.topic, topic_id_partition.partition)
        before = self._hosted.get(key)
        if before is not None and before.topic_id_partition == topic_id_partition:
            log = before.log
        else:
            is_new = topic_id_partition not in self._known_at_start and info.leader_epoch == 0
            log = await self._logs.open_log(topic_id_partition, config, is_new=is_new)
        if not self._is_current(topic_id_partition, info):
            # It changed while the log was loaded, and is applied again in its turn.
            return
        is_leader = info.leader == self._node_id
        if self._remote_storage and log.may_lack_records:
            self.awaited.add(
                AwaitedLog(
                    topic_id_partition=topic_id_partition,
                    log=log,
                    leader_epoch=info.leader_epoch,
                    is_leader=is_leader,
                )
            )
            return
        self.awaited.discard(topic_id_partition)
        if is_leader and (log.latest_epoch is None or log.latest_epoch < info.leader_epoch):
            await log.assign_epoch_start(info.leader_epoch, log.log_end_offset)
            if not self._is_current(topic_id_partition, info):
                return
        hosted = HostedPartition(
            topic_id_partition=topic_id_partition, log=log, info=info, is_leader=is_leader
        )
        self._hosted[key] = hosted
        if hosted != before:
            logger.info(
                "partition_hosted",
                partition=str(topic_id_partition),
                leader=info.leader,
                leader_epoch=info.leader_epoch,
            )
        for listener in self._listeners:
            listener.on_hosted(hosted)

    def _is_current(self, topic_id_partition: TopicIdPartition, info: PartitionInfo) -> bool:
        topic = self._view.topic_by_id(topic_id_partition.topic_id)
        return topic is not None and topic.partition(topic_id_partition.partition) == info

    async def _remove(self, topic_id_partition: TopicIdPartition, *, deleted: bool) -> None:
        topic, partition = topic_id_partition.topic, topic_id_partition.partition
        was_hosted = self._forget(topic_id_partition)
        try:
            log = self._logs.get(topic, partition)
        except LogStorageError:
            # If the log dir comes back, the log in it is a stray. Remote data must not wait for that.
            self._tell_stopped(topic_id_partition, was_hosted=was_hosted, deleted=deleted)
            return
        if log is None or log.topic_id_partition != topic_id_partition:
            return
        await self._logs.delete_log(topic, partition)
        self._tell_stopped(topic_id_partition, was_hosted=was_hosted, deleted=deleted)

    def _tell_stopped(
        self, topic_id_partition: TopicIdPartition, *, was_hosted: bool, deleted: bool
    ) -> None:
        if was_hosted or deleted:
            for listener in self._listeners:
                listener.on_stopped(topic_id_partition, deleted)

    def _forget(self, topic_id_partition: TopicIdPartition) -> bool:
        self.awaited.discard(topic_id_partition)
        key = (topic_id_partition.topic, topic_id_partition.partition)
        hosted = self._hosted.get(key)
        if hosted is None or hosted.topic_id_partition != topic_id_partition:
            return False
        del self._hosted[key]
        return True
