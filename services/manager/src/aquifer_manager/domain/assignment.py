"""Brokers and the partitions they announced."""

from dataclasses import dataclass, field

from aquifer_core.ids import TopicIdPartition

from aquifer_manager.domain.partition_work import PartitionWork
from aquifer_manager.domain.tasks import TaskKey, TaskType
from aquifer_manager.domain.topic_config import TopicConfig

__all__ = ["Assignment", "Broker", "PartitionRole", "RegisteredPartition"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A registered broker; `lease_until_s` is on the clock's monotonic scale."""

    broker_id: int
    incarnation: str
    address: str
    lease_until_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRole:
    """A partition that a broker announces, with the leader's epoch."""

    topic_id_partition: TopicIdPartition
    leader_epoch: int
    config: TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """For whom a run works: a broker, reached at an address, in a leader epoch."""

    topic_id_partition: TopicIdPartition
    broker_id: int
    address: str
    leader_epoch: int
    config: TopicConfig
    work: PartitionWork


@dataclass(slots=True, kw_only=True)
class RegisteredPartition:
    """A partition with the brokers that announced it."""

    topic_id_partition: TopicIdPartition
    leader_epoch: int
    config: TopicConfig
    work: PartitionWork
    leader_broker_id: int | None = None
    followers: dict[int, int] = field(default_factory=dict)

    def tasks(self) -> set[TaskKey]:
        """The tasks that should exist."""
        tip, config = self.topic_id_partition, self.config
        if not config.remote_storage_enable:
            return set()
        keys = {TaskKey(tip, TaskType.FOLLOWER, broker_id) for broker_id in list(self.followers)}
        if self.leader_broker_id is not None:
            keys.add(TaskKey(tip, TaskType.EXPIRATION))
            if not config.remote_log_copy_disable:
                keys.add(TaskKey(tip, TaskType.COPY))
        return keys
