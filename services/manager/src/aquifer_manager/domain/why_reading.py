"""Why an offset cannot be read from remote storage: looked up and tried out."""

import asyncio
from typing import Final

from aquifer_core.errors import (
    AquiferError,
    CorruptDataError,
    ErrorReason,
    RemoteResourceNotFoundError,
)
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_core.ports import RemoteLogMetadataManager, RemoteStorageManager
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState

from aquifer_manager.domain.streams import closing
from aquifer_manager.domain.why_facts import Unknown, WhyFacts, reason_of_error
from aquifer_manager.domain.why_listing import Holding, read_listing
from aquifer_manager.domain.why_reasons import Explanation, WhyQuestion, WhyReason

__all__ = ["ReadExplainer"]

_READ_S: Final = 10.0
_State = RemoteLogSegmentState
_LACKING: Final = (
    (_State.COPY_SEGMENT_STARTED, WhyReason.COPY_NOT_FINISHED),
    (_State.DELETE_SEGMENT_STARTED, WhyReason.BEING_DELETED),
    (_State.COPY_SEGMENT_FINISHED, WhyReason.NOT_IN_LINEAGE),
)


class ReadExplainer:
    """Tries what a cold read does: the look-up by leader epoch, then one batch from the store."""

    def __init__(self, storage: RemoteStorageManager, metadata: RemoteLogMetadataManager) -> None:
        self._storage = storage
        self._metadata = metadata

    async def explain(self, tip: TopicIdPartition, facts: WhyFacts, offset: int) -> Explanation:
        """Why an offset can or cannot be read."""
        log = facts.log
        if isinstance(log, Unknown):
            return _said(offset, log.reason, log.text, error=log.error)
        if offset < log.log_start_offset:
            text = f"the log starts at {log.log_start_offset}"
            return _said(offset, WhyReason.BELOW_LOG_START, text)
        if offset >= log.log_end_offset:
            return _said(offset, WhyReason.ABOVE_LOG_END, f"the log ends at {log.log_end_offset}")
        if offset >= log.local_log_start_offset:
            text = f"the local log starts at {log.local_log_start_offset}"
            return _said(offset, WhyReason.READ_LOCALLY, text)
        epoch = log.epoch_cache().epoch_for_offset(offset)
        if epoch is None:
            text = f"the leader's epochs are {log.lineage()}"
            return _said(offset, WhyReason.NO_LEADER_EPOCH, text)
        return await self._looked_up(tip, offset, epoch)

    async def _looked_up(self, tip: TopicIdPartition, offset: int, epoch: int) -> Explanation:
        try:
            segment = await self._metadata.remote_log_segment_metadata(tip, epoch, offset)
        except RemoteResourceNotFoundError as error:
            return _said(offset, WhyReason.NO_SEGMENT, error.message, error=error)
        except AquiferError as error:
            reason = reason_of_error(error.reason.value, WhyReason.METADATA_UNREACHABLE)
            return _said(offset, reason, error.message, error=error)
        if segment is not None:
            return await self._tried(segment, offset)
        return await self._not_found(tip, offset, epoch)

    async def _not_found(self, tip: TopicIdPartition, offset: int, epoch: int) -> Explanation:
        """What the segments that hold the offset lack."""
        try:
            listing = await read_listing(self._metadata, tip, Holding(offset), to_offset=offset)
        except AquiferError as error:
            reason = reason_of_error(error.reason.value, WhyReason.METADATA_UNREACHABLE)
            return _said(offset, reason, error.message, error=error)
        by_state = {each.state: each for each in listing.chosen}
        for state, reason in _LACKING:
            if state in by_state:
                segment = by_state[state]
                text = (
                    f"the leader wrote it in epoch {epoch}; the segment has "
                    f"{dict(segment.segment_leader_epochs)} and is {state.name}"
                )
                return _said(offset, reason, text, segment.segment_id.id)
        text = f"metadata has no segment for offset {offset} in leader epoch {epoch}"
        return _said(offset, WhyReason.NO_SEGMENT, text)

    async def _tried(self, segment: RemoteLogSegmentMetadata, offset: int) -> Explanation:
        segment_id = segment.segment_id.id
        size_bytes = 0
        try:
            async with (
                asyncio.timeout(_READ_S),
                closing(self._storage.fetch_records(segment, offset, 1)) as pieces,
            ):
                async for piece in pieces:
                    size_bytes += len(piece)
        except TimeoutError:
            text = f"the store did not answer within {_READ_S:g} s"
            return _said(offset, WhyReason.STORE_UNREACHABLE, text, segment_id)
        except AquiferError as error:
            return _said(offset, _reason_of_read(error), error.message, segment_id, error)
        text = f"a batch of {size_bytes} bytes was read in leader epoch order"
        return _said(offset, WhyReason.READABLE, text, segment_id)


def _reason_of_read(error: AquiferError) -> WhyReason:
    if error.reason is ErrorReason.ENCRYPTION_KEY_UNAVAILABLE:
        return WhyReason.ENCRYPTION_KEY_UNAVAILABLE
    if isinstance(error, RemoteResourceNotFoundError):
        return WhyReason.OBJECTS_MISSING
    if isinstance(error, CorruptDataError):
        return WhyReason.OBJECTS_CORRUPT
    return WhyReason.STORE_UNREACHABLE


def _said(
    offset: int,
    reason: WhyReason,
    text: str,
    segment_id: KafkaUuid | None = None,
    error: AquiferError | None = None,
) -> Explanation:
    return Explanation(
        question=WhyQuestion.UNREADABLE,
        reason=reason,
        text=text,
        start_offset=offset,
        end_offset=offset,
        segment_id=segment_id,
        last_error_reason="" if error is None else error.reason.value,
        last_error="" if error is None else error.message,
    )
