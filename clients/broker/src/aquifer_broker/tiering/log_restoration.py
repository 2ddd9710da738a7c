"""Gives a log back what its disk lost: its end, leader epochs and producers from remote storage (K-3.11)."""

from collections.abc import Sequence
from functools import partial

import structlog
from aquifer_core.errors import (
    CorruptIndexError,
    ErrorReason,
    RemoteStorageUnavailableError,
)
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.ports import RemoteLogMetadataManager, RemoteStorageManager

from aquifer_broker.cluster.awaited_logs import AwaitedLog
from aquifer_broker.log.partition_log import PartitionLog
from aquifer_broker.tiering.remote_part import (
    RemotePart,
    fetch_leader_epochs,
    fetch_producer_snapshot,
    find_remote_part,
)

__all__ = ["LogRestoration"]

logger = structlog.get_logger(__name__)


class LogRestoration:
    """What a follower that is behind its leader's local log does in Kafka, a leader does here, whose disk was lost."""

    def __init__(self, metadata: RemoteLogMetadataManager, storage: RemoteStorageManager) -> None:
        self._metadata = metadata
        self._storage = storage

    async def restore(self, awaited: AwaitedLog) -> None:
        """Lets the log go on behind the last remote record, unless it reaches further itself. Idempotent.

        Raises:
            RemoteStorageUnavailableError: Remote storage does not answer, or this broker has yet to get a leader epoch above
                all that are remote; nothing was changed.
            AquiferError: What remote storage answered; the log may be empty by then, and is not to be used.
        """
        tip, log = awaited.topic_id_partition, awaited.log
        # Nothing of an older leader can be finished from here on, so that what is listed next is all there will be.
        await self._metadata.on_partition_leadership_changes({tip: awaited.leader_epoch}, [])
        remote = await find_remote_part(self._metadata, tip)
        if remote.newest_epoch >= awaited.leader_epoch:
            raise RemoteStorageUnavailableError(
                f"{tip} has remote segments of leader epoch {remote.newest_epoch}: this broker cannot lead it in "
                f"epoch {awaited.leader_epoch}",
                reason=ErrorReason.NOT_READY,
            )
        if not _reaches_further(remote, log):
            return
        await self._restart(log, remote)

    async def complete_leader_epochs(self, log: PartitionLog) -> None:
        """Finds the leader epochs of the remote part of a log whose checkpoint was lost. Idempotent.

        Raises:
            RemoteStorageUnavailableError: Remote storage does not answer; nothing was changed.
        """
        remote = await find_remote_part(self._metadata, log.topic_id_partition)
        older = [each for each in remote.finished if each.start_offset < log.local_log_start_offset]
        below = RemotePart(
            finished=older,
            newest_epoch=remote.newest_epoch,
            recorded_start=remote.recorded_start,
        )
        epochs: Sequence[LeaderEpochEntry] = ()
        if below.last is not None:
            epochs = await fetch_leader_epochs(self._storage, below.last, older)
        await log.complete_leader_epochs(epochs)
        logger.info(
            "leader_epochs_completed_from_remote",
            partition=str(log.topic_id_partition),
            epochs={str(epoch): start for epoch, start in log.leader_epochs.as_map().items()},
        )

    async def _restart(self, log: PartitionLog, remote: RemotePart) -> None:
        before, last = log.log_end_offset, remote.last
        epochs: Sequence[LeaderEpochEntry] = ()
        snapshot: bytes | None = None
        if last is not None:
            epochs = await fetch_leader_epochs(self._storage, last, remote.finished)
            snapshot = await fetch_producer_snapshot(self._storage, last)
        start = min(remote.start_offset, remote.end_offset)
        restart = partial(
            log.restart_from_remote, remote.end_offset, log_start_offset=start, epochs=epochs
        )
        try:
            await restart(producer_snapshot=snapshot)
        except CorruptIndexError as error:
            # Without it a producer's batch that was sent twice may be appended twice; without the log nothing is served.
            logger.error(
                "remote_producer_snapshot_corrupt",
                partition=str(log.topic_id_partition),
                error=error.message,
            )
            await restart(producer_snapshot=None)
        if last is not None:
            log.update_highest_offset_in_remote_storage(last.end_offset)
        logger.warning(
            "log_restored_from_remote",
            partition=str(log.topic_id_partition),
            local_end_offset=before,
            restored_to=remote.end_offset,
            log_start_offset=start,
            lost="what was appended behind the restored offset and never copied; how much is unknown",
        )


def _reaches_further(remote: RemotePart, log: PartitionLog) -> bool:
    """Whether remote storage has, or had, records that the local log lacks at its end."""
    if remote.end_offset <= log.log_end_offset:
        return False
    has_records = log.size_bytes > 0
    # A local tail of a newer epoch has replaced what reaches further remotely.
    return not (
        has_records and log.latest_epoch is not None and log.latest_epoch > remote.newest_epoch
    )
