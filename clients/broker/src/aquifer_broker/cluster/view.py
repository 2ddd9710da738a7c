"""What this broker knows of the cluster: brokers, topics, leaders, settings."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from aquifer_core.ids import KafkaUuid, TopicIdPartition

__all__ = [
    "BrokerInfo",
    "ClusterChange",
    "ClusterUpdate",
    "ClusterView",
    "Endpoint",
    "PartitionInfo",
    "TopicInfo",
]

NO_LEADER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a listener of a broker is reached."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    """A broker; `broker_epoch` rises with every registration of the id."""

    broker_id: int
    incarnation: str
    broker_epoch: int = 0
    endpoints: tuple[Endpoint, ...] = ()
    rack: str = ""
    broker_log_address: str = ""
    alive: bool = True
    log_dirs: tuple[str, ...] = ()

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of a listener name; None: the broker has no such listener."""
        return next((each for each in self.endpoints if each.listener == listener), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """A partition; `leader` is -1 when there is none."""

    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """A topic; `configs` holds only what was set."""

    topic_id: KafkaUuid
    name: str
    partitions: tuple[PartitionInfo, ...]
    configs: Mapping[str, str] = field(default_factory=dict)

    def partition(self, number: int) -> PartitionInfo | None:
        """A partition by its number."""
        if 0 <= number < len(self.partitions) and self.partitions[number].partition == number:
            return self.partitions[number]
        return next((each for each in self.partitions if each.partition == number), None)

    def id_of(self, number: int) -> TopicIdPartition:
        """The full identity of a partition."""
        return TopicIdPartition(self.topic_id, self.name, number)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterUpdate:
    """One message of the watch: a snapshot replaces everything, a delta only what it names."""

    version: int
    is_snapshot: bool = False
    cluster_id: str | None = None
    brokers: tuple[BrokerInfo, ...] = ()
    topics: tuple[TopicInfo, ...] = ()
    deleted_topic_ids: tuple[KafkaUuid, ...] = ()
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChange:
    """What an update changed; topics that look as before are left out."""

    version: int
    topics: tuple[TopicInfo, ...]
    deleted_topics: tuple[TopicInfo, ...]
    brokers_changed: bool
    configs_changed: bool


class ClusterView:
    """The newest known state; lives in the event loop's thread.

    Stale is allowed: while the metadata service is down the broker serves what it knew last.
    """

    def __init__(self) -> None:
        self.version = 0
        self.cluster_id: str | None = None
        self._brokers: dict[int, BrokerInfo] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._topics_by_id: dict[KafkaUuid, TopicInfo] = {}
        self._broker_configs: dict[str, Mapping[str, str]] = {}
        self._listeners: list[Callable[[ClusterChange], None]] = []
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def brokers(self) -> Mapping[int, BrokerInfo]:
        """All registered brokers by id, dead ones too."""
        return self._brokers

    @property
    def topics(self) -> Mapping[str, TopicInfo]:
        """All topics by name."""
        return self._topics

    def live_brokers(self) -> list[BrokerInfo]:
        """Brokers with a live lease, by id."""
        return sorted(
            (broker for broker in self._brokers.values() if broker.alive),
            key=lambda broker: broker.broker_id,
        )

    def topic(self, name: str) -> TopicInfo | None:
        """A topic by name."""
        return self._topics.get(name)

    def topic_by_id(self, topic_id: KafkaUuid) -> TopicInfo | None:
        """A topic by id."""
        return self._topics_by_id.get(topic_id)

    def broker_configs(self, broker_id: int) -> dict[str, str]:
        """Dynamic settings of a broker, over those of all brokers."""
        return {
            **self._broker_configs.get("", {}),
            **self._broker_configs.get(str(broker_id), {}),
        }

    def dynamic_configs(self, resource: str) -> Mapping[str, str]:
        """Dynamic settings as set for one broker id, or for all with an empty name."""
        return self._broker_configs.get(resource, {})

    def on_change(self, listener: Callable[[ClusterChange], None]) -> None:
        """Calls the listener after every update that changed something."""
        self._listeners.append(listener)

    async def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Waits until an update made the condition true; False: the time was over."""
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    await self._next_update()
        except TimeoutError:
            return False
        return True

    async def _next_update(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def apply(self, update: ClusterUpdate) -> ClusterChange:
        """Takes an update over. An older or equal version of a delta changes nothing."""
        if not update.is_snapshot and update.version <= self.version:
            return self._nothing(self.version)
        changed, deleted = self._apply_topics(update)
        brokers_changed = self._apply_brokers(update)
        configs_changed = self._apply_broker_configs(update)
        self.version = update.version
        if update.cluster_id is not None:
            self.cluster_id = update.cluster_id
        change = ClusterChange(
            version=update.version,
            topics=tuple(changed),
            deleted_topics=tuple(deleted),
            brokers_changed=brokers_changed,
            configs_changed=configs_changed,
        )
        if changed or deleted or brokers_changed or configs_changed:
            for listener in tuple(self._listeners):
                listener(change)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        return change

    def _apply_topics(self, update: ClusterUpdate) -> tuple[list[TopicInfo], list[TopicInfo]]:
        gone_ids = set(update.deleted_topic_ids)
        if update.is_snapshot:
            gone_ids |= self._topics_by_id.keys() - {topic.topic_id for topic in update.topics}
        # A topic made again under its name has a new id; the old one is gone.
        for topic in update.topics:
            known = self._topics.get(topic.name)
            if known is not None and known.topic_id != topic.topic_id:
                gone_ids.add(known.topic_id)
        deleted = list(self._forget(gone_ids))
        changed = [t for t in update.topics if self._topics_by_id.get(t.topic_id) != t]
        for topic in changed:
            self._topics[topic.name] = topic
            self._topics_by_id[topic.topic_id] = topic
        return changed, deleted

    def _forget(self, topic_ids: Iterable[KafkaUuid]) -> Iterable[TopicInfo]:
        for topic_id in topic_ids:
            topic = self._topics_by_id.pop(topic_id, None)
            if topic is not None:
                if self._topics.get(topic.name) is topic:
                    del self._topics[topic.name]
                yield topic

    def _apply_brokers(self, update: ClusterUpdate) -> bool:
        brokers = {} if update.is_snapshot else dict(self._brokers)
        brokers.update({broker.broker_id: broker for broker in update.brokers})
        changed = brokers != self._brokers
        self._brokers = brokers
        return changed

    def _apply_broker_configs(self, update: ClusterUpdate) -> bool:
        configs = {} if update.is_snapshot else dict(self._broker_configs)
        configs.update(update.broker_configs)
        changed = configs != self._broker_configs
        self._broker_configs = configs
        return changed

    @staticmethod
    def _nothing(version: int) -> ClusterChange:
        return ClusterChange(
            version=version,
            topics=(),
            deleted_topics=(),
            brokers_changed=False,
            configs_changed=False,
        )
