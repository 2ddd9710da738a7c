"""Tells a follower how far remote storage reaches and where the log starts, and its index as well (SR-17, SR-21, SR-33, K-3.5)."""

from aquifer_core.errors import NotLeaderError
from aquifer_core.ports import RemoteLogMetadataManager

from aquifer_manager.domain.leader_log import find_highest_remote_offset
from aquifer_manager.domain.partition_facts import PartitionFacts
from aquifer_manager.domain.ports import BrokerConnections, LogQuery
from aquifer_manager.domain.registry import Registry
from aquifer_manager.domain.remote_indexes import RemoteIndexes
from aquifer_manager.domain.tasks import TaskKey, TaskOutcome

__all__ = ["FollowerTask"]


class FollowerTask:
    """Keeps the remote offsets of a follower up to date, so that its local retention may go on, and its local remote index.

    Copies and deletes nothing remote.
    """

    def __init__(
        self,
        registry: Registry,
        brokers: BrokerConnections,
        metadata: RemoteLogMetadataManager,
        facts: PartitionFacts,
        indexes: RemoteIndexes,
    ) -> None:
        self._registry = registry
        self._brokers = brokers
        self._metadata = metadata
        self._facts = facts
        self._indexes = indexes

    async def run(self, key: TaskKey) -> TaskOutcome:
        """One run.

        Raises:
            NotLeaderError: the broker's epoch is not the announced one; it will be announced again.
            AquiferError: metadata or the broker did not answer.
        """
        tip = key.topic_id_partition
        assignment = self._registry.follower(tip, key.broker_id)
        if assignment is None:
            return TaskOutcome()
        broker = self._brokers.logs_at(assignment.address)
        (log,) = await broker.describe_logs([LogQuery(topic_id_partition=tip)])
        if log is None or log.leader_epoch != assignment.leader_epoch:
            raise NotLeaderError(
                f"{tip}: broker {key.broker_id} does not follow it in epoch {assignment.leader_epoch}",
                metadata={"topicIdPartition": str(tip)},
            )
        summary = await self._facts.summary(tip)
        highest = await find_highest_remote_offset(self._metadata, log, summary)
        if summary is None:
            earliest = await self._metadata.earliest_log_offset(tip)
        else:
            earliest = summary.earliest_log_offset
        start = log.log_start_offset if earliest is None else max(earliest, log.log_start_offset)
        self._indexes.should_reach(tip, log.leader_epochs, start, highest)
        raises_start = earliest is not None and earliest > log.log_start_offset
        if highest > log.highest_remote_offset or raises_start:
            await broker.update_remote_log_offsets(
                tip,
                assignment.leader_epoch,
                log_start_offset=earliest if raises_start else None,
                highest_remote_offset=highest if highest >= 0 else None,
            )
        return TaskOutcome()
