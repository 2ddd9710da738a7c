"""What the manager has yet to be told: the difference between what is hosted here and what it knows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aquifer_core.ids import KafkaUuid, TopicIdPartition

from aquifer_broker.tiering.manager_client import PartitionRole, TieringConfig

__all__ = ["Announcement", "difference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """What to send.

    Attributes:
        roles: New partitions, and those with another role or leader epoch.
        configs: Topics whose settings changed.
        configured: Partitions of these of which nothing else changed.
        stopped: Partitions that are no longer hosted, or no longer tiered.
    """

    roles: tuple[PartitionRole, ...]
    configs: Mapping[KafkaUuid, TieringConfig]
    configured: tuple[PartitionRole, ...]
    stopped: tuple[PartitionRole, ...]


def difference(
    hosted: Iterable[PartitionRole], announced: Mapping[TopicIdPartition, PartitionRole]
) -> Announcement:
    """Compares what is hosted with what was announced."""
    roles: list[PartitionRole] = []
    configured: list[PartitionRole] = []
    seen: set[TopicIdPartition] = set()
    for role in hosted:
        seen.add(role.topic_id_partition)
        before = announced.get(role.topic_id_partition)
        if before is None or (before.is_leader, before.leader_epoch) != (
            role.is_leader,
            role.leader_epoch,
        ):
            roles.append(role)
        elif before.config != role.config:
            configured.append(role)
    return Announcement(
        roles=tuple(roles),
        configs={role.topic_id_partition.topic_id: role.config for role in configured},
        configured=tuple(configured),
        stopped=tuple(role for tip, role in announced.items() if tip not in seen),
    )
