"""One copy of one segment: recorded, uploaded by the broker, committed, or taken back (SR-16, K-3.2).

What may have happened is never assumed not to have happened:

* the answer to COPY_SEGMENT_FINISHED got lost: the update is repeated, now or in the next run, and no object is deleted before
  metadata has refused it for good;
* the answer of an upload got lost: the copy is taken back, and its objects are deleted once more by the next expiration, because
  the upload may still have been writing.
"""

import structlog
from aquifer_core.errors import (
    AquiferError,
    InvalidRequestError,
    InvalidStateTransitionError,
    RemoteResourceNotFoundError,
)
from aquifer_core.ports import Clock, RemoteLogMetadataManager
from aquifer_core.segment import (
    MAX_CUSTOM_METADATA_BYTES,
    CopyResult,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
)
from aquifer_core.segment_lifecycle import COPY_FAILED
from aquifer_core.state import RemoteLogSegmentState

from aquifer_manager.domain.assignment import Assignment
from aquifer_manager.domain.backoff import RETRIABLE, Backoff, retry_until
from aquifer_manager.domain.partition_work import PartitionWork, Uncommitted
from aquifer_manager.domain.ports import BrokerLogs
from aquifer_manager.domain.remote_indexes import RemoteIndexes
from aquifer_manager.domain.segment_deletion import SegmentDeletion
from aquifer_manager.domain.upload_slots import UploadSlots

__all__ = ["SegmentCopy"]

logger = structlog.get_logger(__name__)


class SegmentCopy:
    """Copies single segments and settles copies whose end is unknown."""

    def __init__(
        self,
        metadata: RemoteLogMetadataManager,
        deletion: SegmentDeletion,
        *,
        uploads: UploadSlots,
        indexes: RemoteIndexes,
        clock: Clock,
        backoff: Backoff,
        commit_timeout_s: float = 30.0,
    ) -> None:
        """Prepares.

        Args:
            metadata: where copies are recorded.
            deletion: takes copies back.
            uploads: watches uploads.
            indexes: take note of what is copied.
            clock: measures and waits.
            backoff: between attempts to record something.
            commit_timeout_s: for how long one run tries to record something.
        """
        self._metadata = metadata
        self._deletion = deletion
        self._uploads = uploads
        self._indexes = indexes
        self._clock = clock
        self._backoff = backoff
        self._commit_timeout_s = commit_timeout_s

    async def copy(
        self, assignment: Assignment, broker: BrokerLogs, segment: RemoteLogSegmentMetadata
    ) -> None:
        """Copies a segment; when this returns it is finished in metadata.

        Raises:
            AquiferError: it is not, and what is left of the attempt is taken back here or by a later run.
        """
        await self.commit(assignment.work, await self.store(assignment, broker, segment))

    async def store(
        self, assignment: Assignment, broker: BrokerLogs, segment: RemoteLogSegmentMetadata
    ) -> Uncommitted:
        """Records a segment and has it uploaded. Its commit, or `leave`, must follow.

        Raises:
            AquiferError: it is not stored, and what is left of the attempt is taken back here or by a later run.
        """
        work, segment_id = assignment.work, segment.segment_id.id
        work.in_progress.add(segment_id)
        work.begun[segment_id] = segment
        try:
            await self._add(segment, assignment)
            result = await self._upload(assignment, broker, segment)
        except BaseException:
            # Cancellation as well: what is still open is left to the next run.
            if segment_id in work.in_progress:
                work.failed[segment_id] = segment
            raise
        work.stored[segment_id] = segment
        return Uncommitted(
            metadata=segment,
            update=self._finished(segment, result, assignment.broker_id),
            leader_epoch=assignment.leader_epoch,
            remote_log_index=result.remote_log_index,
        )

    async def commit(self, work: PartitionWork, uncommitted: Uncommitted) -> None:
        """Finishes a stored segment in metadata; all older ones of the partition must be.

        Raises:
            AquiferError: nobody knows whether it is, and a later run finds out; or it was refused, and its objects go.
        """
        segment_id = uncommitted.metadata.segment_id.id
        work.stored.pop(segment_id, None)
        try:
            await self._commit(work, uncommitted)
        except BaseException:
            if segment_id in work.in_progress and segment_id not in work.failed:
                work.uncommitted[segment_id] = uncommitted
            raise

    def leave(self, work: PartitionWork, stored: Uncommitted) -> None:
        """A stored segment is not to be committed: `settle` takes it back."""
        segment_id = stored.metadata.segment_id.id
        work.stored.pop(segment_id, None)
        work.failed[segment_id] = stored.metadata

    async def give_up(self, work: PartitionWork, stored: Uncommitted, *, keep: bool) -> None:
        """A stored segment cannot be committed now, since the one before is not.

        Args:
            work: of the partition.
            stored: the copy.
            keep: nobody knows whether the one before is; `settle` finds out, and commits this one after it. Otherwise it is
                taken back, now or by a later run.
        """
        segment = stored.metadata
        self.leave(work, stored)
        if keep:
            work.uncommitted[segment.segment_id.id] = stored
            del work.failed[segment.segment_id.id]
        else:
            await self._try_to_take_back(work, segment, segment.broker_id, sure=True)

    async def settle(self, work: PartitionWork, broker_id: int) -> None:
        """Ends what earlier runs left open: commits what is stored, takes back what failed.

        Raises:
            AquiferError: something is still open.
        """
        for uncommitted in list(work.uncommitted.values()):
            await self._commit(work, uncommitted, repeated=True)
        for segment in list(work.failed.values()):
            await self._take_back(work, segment, broker_id, sure=False)

    async def _add(self, segment: RemoteLogSegmentMetadata, assignment: Assignment) -> None:
        try:
            await retry_until(
                lambda: self._metadata.add_remote_log_segment_metadata(
                    segment, leader_epoch=assignment.leader_epoch
                ),
                backoff=self._backoff,
                deadline_s=self._clock.monotonic_s() + self._commit_timeout_s,
                clock=self._clock,
            )
        except RETRIABLE:
            raise
        except AquiferError:
            # Refused for good: nothing was recorded and nothing was uploaded.
            self._forget(assignment.work, segment)
            raise

    async def _upload(
        self, assignment: Assignment, broker: BrokerLogs, segment: RemoteLogSegmentMetadata
    ) -> CopyResult:
        try:
            async with self._uploads.upload() as upload:
                result = await broker.copy_segment(
                    segment, assignment.leader_epoch, on_progress=upload.sent
                )
            custom = result.custom_metadata or b""
            if len(custom) > MAX_CUSTOM_METADATA_BYTES:
                raise InvalidRequestError(
                    f"the storage manager's custom metadata has {len(custom)} bytes, "
                    f"at most {MAX_CUSTOM_METADATA_BYTES} are allowed"
                )
            return result
        except Exception as error:
            logger.warning(
                "segment_copy_failed",
                topic=segment.topic_id_partition.topic,
                partition=segment.topic_id_partition.partition,
                segment_id=str(segment.segment_id.id),
                start_offset=segment.start_offset,
                error=str(error),
            )
            sure = isinstance(error, AquiferError) and not isinstance(error, RETRIABLE)
            await self._try_to_take_back(assignment.work, segment, assignment.broker_id, sure=sure)
            raise

    async def _commit(
        self, work: PartitionWork, uncommitted: Uncommitted, *, repeated: bool = False
    ) -> None:
        attempts = [repeated]
        try:
            await retry_until(
                lambda: self._metadata.update_remote_log_segment_metadata(
                    uncommitted.update, leader_epoch=uncommitted.leader_epoch
                ),
                backoff=self._backoff,
                deadline_s=self._clock.monotonic_s() + self._commit_timeout_s,
                clock=self._clock,
                on_failure=lambda _: attempts.append(True),
            )
        except RETRIABLE:
            raise
        except AquiferError:
            if not (any(attempts) and await self._is_finished(uncommitted)):
                await self._refused(work, uncommitted)
                raise
        work.uncommitted.pop(uncommitted.metadata.segment_id.id, None)
        work.note_copied(uncommitted.metadata, uncommitted.leader_epoch)
        finished = uncommitted.metadata.with_update(uncommitted.update)
        self._indexes.copied(finished, uncommitted.remote_log_index)

    async def _is_finished(self, uncommitted: Uncommitted) -> bool:
        """Whether an attempt whose answer got lost had gone through, by the segment's history."""
        history = await self._metadata.segment_history(uncommitted.metadata.segment_id)
        return any(
            event.to_state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED for event in history
        )

    async def _refused(self, work: PartitionWork, uncommitted: Uncommitted) -> None:
        """The segment never became readable and never will: its objects may go, and so may what was to follow it."""
        segment = uncommitted.metadata
        work.uncommitted.pop(segment.segment_id.id, None)
        for later in list(work.uncommitted.values()):
            if later.metadata.start_offset > segment.start_offset:
                del work.uncommitted[later.metadata.segment_id.id]
                self.leave(work, later)
        work.failed[segment.segment_id.id] = segment
        await self._try_to_take_back(work, segment, segment.broker_id, sure=True)

    async def _try_to_take_back(
        self, work: PartitionWork, segment: RemoteLogSegmentMetadata, broker_id: int, *, sure: bool
    ) -> None:
        try:
            await self._take_back(work, segment, broker_id, sure=sure)
        except Exception as error:
            self._left_over(segment, error)

    async def _take_back(
        self, work: PartitionWork, segment: RemoteLogSegmentMetadata, broker_id: int, *, sure: bool
    ) -> None:
        """Deletes a copy that was never finished. Once it is marked, expirations see to the rest, whatever fails here.

        One that was taken for abandoned, and has been finished meanwhile, is kept: metadata refuses to mark it for this reason.

        No leader epoch is given: a fenced leader may, and must, clean up its own copy, which nobody else can finish.

        Args:
            work: remembers what is open.
            segment: the copy.
            broker_id: for whom.
            sure: the upload has ended; otherwise the entry is left to the next expiration, which deletes once more.

        Raises:
            AquiferError: it could not be marked.
        """
        try:
            await self._deletion.mark(
                segment, reason=COPY_FAILED, broker_id=broker_id, leader_epoch=None
            )
        except (RemoteResourceNotFoundError, InvalidStateTransitionError) as error:
            if error.metadata.get("from") == RemoteLogSegmentState.COPY_SEGMENT_FINISHED.name:
                self._keep(work, segment)
                return
            # Never recorded; or deleted by somebody else, perhaps before the upload's last object was written.
            logger.debug("failed_copy_is_gone", segment_id=str(segment.segment_id.id), error=error)
            recorded = False
        else:
            recorded = True
        self._forget(work, segment)
        try:
            await self._deletion.delete_objects(segment)
            if sure and recorded:
                await self._deletion.finish(
                    segment, reason=COPY_FAILED, broker_id=broker_id, leader_epoch=None
                )
        except AquiferError as error:
            self._left_over(segment, error)

    def _keep(self, work: PartitionWork, segment: RemoteLogSegmentMetadata) -> None:
        """The copy is finished, by whoever began it: how far remote storage reaches has to be looked up again."""
        logger.info(
            "copy_was_finished",
            topic=segment.topic_id_partition.topic,
            partition=segment.topic_id_partition.partition,
            segment_id=str(segment.segment_id.id),
            end_offset=segment.end_offset,
        )
        self._forget(work, segment)
        work.copied_offset = None
        work.quiet = None

    def _left_over(self, segment: RemoteLogSegmentMetadata, error: Exception) -> None:
        logger.warning(
            "failed_copy_left_over",
            topic=segment.topic_id_partition.topic,
            partition=segment.topic_id_partition.partition,
            segment_id=str(segment.segment_id.id),
            error=str(error),
        )

    def _forget(self, work: PartitionWork, segment: RemoteLogSegmentMetadata) -> None:
        work.failed.pop(segment.segment_id.id, None)
        work.in_progress.discard(segment.segment_id.id)
        work.begun.pop(segment.segment_id.id, None)

    def _finished(
        self, segment: RemoteLogSegmentMetadata, result: CopyResult, broker_id: int
    ) -> RemoteLogSegmentMetadataUpdate:
        return RemoteLogSegmentMetadataUpdate(
            segment_id=segment.segment_id,
            event_timestamp_ms=self._clock.now_ms(),
            state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
            broker_id=broker_id,
            custom_metadata=result.custom_metadata,
            reason="copied",
        )
