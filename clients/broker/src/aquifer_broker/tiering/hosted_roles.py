"""The tiered partitions of this broker, as the manager is to know them."""

from collections.abc import Iterator

from aquifer_core.ids import TopicIdPartition

from aquifer_broker.cluster.hosted_partitions import HostedPartition, HostedPartitions
from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.tiering.manager_client import PartitionRole, TieringConfig

__all__ = ["HostedRoles"]


class HostedRoles:
    """View of `HostedPartitions` through the eyes of tiering."""

    def __init__(self, partitions: HostedPartitions) -> None:
        self._partitions = partitions

    def roles(self) -> Iterator[PartitionRole]:
        """Every tiered partition, led or followed, whose lineage is known: without it remote segments look like another's."""
        for hosted in self._partitions.hosted():
            if hosted.log.tiering_enabled and not hosted.log.lacks_leader_epochs:
                yield self.role_of(hosted)

    def role_of(self, hosted: HostedPartition) -> PartitionRole:
        """One partition."""
        return PartitionRole(
            topic_id_partition=hosted.topic_id_partition,
            is_leader=hosted.is_leader,
            leader_epoch=hosted.leader_epoch,
            config=self._config(hosted.log.config),
        )

    def lost_tiering_with_deletion(self, role: PartitionRole) -> bool:
        """Whether a partition that this broker leads ceased to be tiered with `remote.log.delete.on.disable` (K-3.12)."""
        hosted = self.find(role.topic_id_partition)
        if hosted is None or not hosted.is_leader:
            return False
        config = hosted.log.config
        return not config.tiered and config.remote_log_delete_on_disable

    def find(self, topic_id_partition: TopicIdPartition) -> HostedPartition | None:
        """The partition with exactly this topic id."""
        hosted = self._partitions.get(topic_id_partition.topic, topic_id_partition.partition)
        if hosted is None or hosted.topic_id_partition != topic_id_partition:
            return None
        return hosted

    def _config(self, config: LogConfig) -> TieringConfig:
        return TieringConfig(
            remote_storage_enable=config.tiered,
            retention_ms=config.retention_ms,
            retention_bytes=config.retention_bytes,
            local_retention_ms=config.local_retention_ms,
            local_retention_bytes=config.local_retention_bytes,
            remote_log_copy_disable=config.remote_log_copy_disable,
            remote_log_retention_minutes=config.remote_log_retention_minutes,
            remote_log_retention_bytes=config.remote_log_retention_bytes,
        )
