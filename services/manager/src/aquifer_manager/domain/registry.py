"""Which brokers are there, and which partitions they lead and follow (SR-15, SR-22)."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from aquifer_core.errors import ErrorReason, RemoteResourceNotFoundError, StaleLeaderEpochError
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_core.ports import Clock

from aquifer_manager.domain.assignment import (
    Assignment,
    Broker,
    PartitionRole,
    RegisteredPartition,
)
from aquifer_manager.domain.partition_work import PartitionWork
from aquifer_manager.domain.tasks import TaskKey
from aquifer_manager.domain.topic_config import TopicConfig

__all__ = ["Registry"]


class Registry:
    """Brokers with leases, and their partitions. Pure memory: brokers announce everything again to a new manager."""

    def __init__(self, *, lease_ms: int, clock: Clock) -> None:
        self.lease_ms = lease_ms
        self._clock = clock
        self._brokers: dict[int, Broker] = {}
        self._partitions: dict[TopicIdPartition, RegisteredPartition] = {}
        self._by_topic_id: dict[KafkaUuid, set[TopicIdPartition]] = {}
        self._left_addresses: set[str] = set()

    def register(self, broker_id: int, incarnation: str, address: str) -> set[TopicIdPartition]:
        """Registers a broker; idempotent for one incarnation, another one begins without partitions.

        Returns:
            Partitions that lost a role.
        """
        known = self._brokers.get(broker_id)
        changed: set[TopicIdPartition] = set()
        if known is not None and known.incarnation != incarnation:
            changed = self._drop_roles(broker_id)
        if known is not None:
            self._left_addresses.add(known.address)
        self._brokers[broker_id] = Broker(
            broker_id=broker_id,
            incarnation=incarnation,
            address=address,
            lease_until_s=self._lease_end_s(),
        )
        return changed

    def keep(self, broker_id: int, incarnation: str) -> None:
        """Renews a lease.

        Raises:
            RemoteResourceNotFoundError: not registered, or another incarnation is (BROKER_NOT_FOUND).
        """
        broker = self.broker(broker_id, incarnation)
        self._brokers[broker_id] = replace(broker, lease_until_s=self._lease_end_s())

    def broker(self, broker_id: int, incarnation: str | None = None) -> Broker:
        """A registered broker whose lease runs.

        Raises:
            RemoteResourceNotFoundError: not registered, or another incarnation is (BROKER_NOT_FOUND).
        """
        broker = self._brokers.get(broker_id)
        if (
            broker is None
            or broker.lease_until_s < self._clock.monotonic_s()
            or (incarnation is not None and broker.incarnation != incarnation)
        ):
            raise RemoteResourceNotFoundError(
                f"broker {broker_id} is not registered with this manager",
                reason=ErrorReason.BROKER_NOT_FOUND,
                metadata={"brokerId": str(broker_id)},
            )
        return broker

    def brokers(self) -> list[Broker]:
        """All registered brokers."""
        return list(self._brokers.values())

    def expire(self) -> tuple[list[Broker], set[TopicIdPartition]]:
        """Forgets brokers whose lease is over, with their roles."""
        now_s = self._clock.monotonic_s()
        gone = [broker for broker in self._brokers.values() if broker.lease_until_s < now_s]
        changed: set[TopicIdPartition] = set()
        for broker in gone:
            del self._brokers[broker.broker_id]
            self._left_addresses.add(broker.address)
            changed |= self._drop_roles(broker.broker_id)
        return gone, changed

    def take_left_addresses(self) -> set[str]:
        """Addresses that brokers had and that none has any more, each told once: a broker may come back with another one."""
        left = self._left_addresses - {broker.address for broker in self._brokers.values()}
        self._left_addresses.clear()
        return left

    def lead(self, broker_id: int, roles: Iterable[PartitionRole]) -> set[TopicIdPartition]:
        """The broker leads these partitions now; lower leader epochs than known are ignored. Returns what changed."""
        changed = set()
        for role in roles:
            partition = self._partition(role)
            if role.leader_epoch < partition.leader_epoch:
                continue
            partition.leader_epoch = role.leader_epoch
            partition.config = role.config
            partition.leader_broker_id = broker_id
            partition.followers.pop(broker_id, None)
            partition.work.begin_epoch(role.leader_epoch)
            changed.add(role.topic_id_partition)
        return changed

    def follow(self, broker_id: int, roles: Iterable[PartitionRole]) -> set[TopicIdPartition]:
        """The broker follows these partitions now; lower leader epochs than known are ignored. Returns what changed."""
        changed = set()
        for role in roles:
            partition = self._partition(role)
            if role.leader_epoch < partition.leader_epoch:
                continue
            if partition.leader_broker_id == broker_id or (
                role.leader_epoch > partition.leader_epoch
            ):
                partition.leader_broker_id = None
            partition.leader_epoch = role.leader_epoch
            partition.config = role.config
            partition.followers[broker_id] = role.leader_epoch
            changed.add(role.topic_id_partition)
        return changed

    def reconfigure(self, topic_id: KafkaUuid, config: TopicConfig) -> set[TopicIdPartition]:
        """Sets a topic's settings; returns its registered partitions."""
        changed = set(self._by_topic_id.get(topic_id, ()))
        for tip in changed:
            self._partitions[tip].config = config
        return changed

    def stop(self, broker_id: int, partitions: Iterable[TopicIdPartition]) -> set[TopicIdPartition]:
        """The broker no longer hosts these partitions. Returns what changed."""
        return {tip for tip in partitions if self._drop_role(broker_id, tip)}

    def fence(self, assignment: Assignment) -> bool:
        """Stops the leader's work until one is announced again; False when that has already happened."""
        if not self.is_current(assignment):
            return False
        assignment.work.fenced = True
        return True

    def get(self, tip: TopicIdPartition) -> RegisteredPartition | None:
        """A registered partition."""
        return self._partitions.get(tip)

    def require(self, tip: TopicIdPartition) -> RegisteredPartition:
        """A registered partition.

        Raises:
            RemoteResourceNotFoundError: not registered (PARTITION_NOT_FOUND).
        """
        partition = self._partitions.get(tip)
        if partition is None:
            raise RemoteResourceNotFoundError(
                f"{tip} is not registered with this manager",
                reason=ErrorReason.PARTITION_NOT_FOUND,
                metadata={"topicIdPartition": str(tip)},
            )
        return partition

    def partitions(self, topic: str = "") -> Iterator[RegisteredPartition]:
        """Registered partitions, of one topic or (empty) of all."""
        for partition in list(self._partitions.values()):
            if not topic or partition.topic_id_partition.topic == topic:
                yield partition

    def tasks(self, tip: TopicIdPartition) -> set[TaskKey]:
        """The tasks that a partition should have; none when it is not registered."""
        partition = self._partitions.get(tip)
        return partition.tasks() if partition else set()

    def leader(self, tip: TopicIdPartition) -> Assignment | None:
        """For whom leader tasks of a partition work now; None when its leader is not registered here.

        Raises:
            StaleLeaderEpochError: metadata knows a newer leader; nothing is done until one is announced.
        """
        partition = self._partitions.get(tip)
        if partition is None or partition.leader_broker_id is None:
            return None
        if partition.work.fenced:
            raise StaleLeaderEpochError(
                f"{tip}: metadata knows a newer leader than broker {partition.leader_broker_id} in "
                f"epoch {partition.leader_epoch}; waiting for the leader to be announced again",
                metadata={"given": str(partition.leader_epoch)},
            )
        return self._assignment(partition, partition.leader_broker_id)

    def observed_leader(self, tip: TopicIdPartition) -> Assignment | None:
        """The leader to look at, fenced or not; None when it is not registered here."""
        partition = self._partitions.get(tip)
        if partition is None or partition.leader_broker_id is None:
            return None
        return self._assignment(partition, partition.leader_broker_id)

    def follower(self, tip: TopicIdPartition, broker_id: int) -> Assignment | None:
        """For whom a follower task works; None when the broker does not follow the partition."""
        partition = self._partitions.get(tip)
        if partition is None or broker_id not in partition.followers:
            return None
        return self._assignment(partition, broker_id)

    def is_current(self, assignment: Assignment) -> bool:
        """Whether the broker still leads in the same epoch, unfenced."""
        partition = self._partitions.get(assignment.topic_id_partition)
        return (
            partition is not None
            and not partition.work.fenced
            and partition.leader_broker_id == assignment.broker_id
            and partition.leader_epoch == assignment.leader_epoch
        )

    def _assignment(self, partition: RegisteredPartition, broker_id: int) -> Assignment | None:
        broker = self._brokers.get(broker_id)
        if broker is None:
            return None
        return Assignment(
            topic_id_partition=partition.topic_id_partition,
            broker_id=broker_id,
            address=broker.address,
            leader_epoch=partition.followers.get(broker_id, partition.leader_epoch),
            config=partition.config,
            work=partition.work,
        )

    def _partition(self, role: PartitionRole) -> RegisteredPartition:
        tip = role.topic_id_partition
        partition = self._partitions.get(tip)
        if partition is None:
            partition = RegisteredPartition(
                topic_id_partition=tip,
                leader_epoch=role.leader_epoch,
                config=role.config,
                work=PartitionWork(topic_id_partition=tip),
            )
            self._partitions[tip] = partition
            self._by_topic_id.setdefault(tip.topic_id, set()).add(tip)
        return partition

    def _drop_roles(self, broker_id: int) -> set[TopicIdPartition]:
        return {tip for tip in list(self._partitions) if self._drop_role(broker_id, tip)}

    def _drop_role(self, broker_id: int, tip: TopicIdPartition) -> bool:
        partition = self._partitions.get(tip)
        if partition is None:
            return False
        led = partition.leader_broker_id == broker_id
        if led:
            partition.leader_broker_id = None
        followed = partition.followers.pop(broker_id, None) is not None
        if partition.leader_broker_id is None and not partition.followers:
            del self._partitions[tip]
            self._forget_topic(tip)
        return led or followed

    def _forget_topic(self, tip: TopicIdPartition) -> None:
        others = self._by_topic_id[tip.topic_id]
        others.discard(tip)
        if not others:
            del self._by_topic_id[tip.topic_id]

    def _lease_end_s(self) -> float:
        return self._clock.monotonic_s() + self.lease_ms / 1000
