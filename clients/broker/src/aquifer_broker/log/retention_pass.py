"""One pass of local retention over a log (K-3.5)."""

from collections.abc import Iterator
from itertools import chain, islice, pairwise

from aquifer_broker.log.local_retention import (
    LocalRetentionPolicy,
    RetentionDecision,
    RetentionReason,
    SegmentFacts,
    decide_local_retention,
)
from aquifer_broker.log.log_resources import LogResources
from aquifer_broker.log.log_roll import delete_segments, roll_log
from aquifer_broker.log.log_segments import LogSegments
from aquifer_broker.log.log_state import LogState

__all__ = ["run_retention_pass"]


def run_retention_pass(state: LogState, resources: LogResources) -> int:
    """Applies log start, size and time in Kafka's order; answers how many segments were deleted. Idempotent.

    Raises:
        OSError: The disk failed.
    """
    deleted = 0
    for reason in RetentionReason:
        decision = decide_local_retention(
            _facts(state.segments), _policy(state), reason, resources.clock.now_ms()
        )
        deleted += _apply(state, resources, decision)
    return deleted


def _apply(state: LogState, resources: LogResources, decision: RetentionDecision) -> int:
    doomed = list(islice(state.segments.oldest_first(), decision.segments))
    if decision.roll or len(doomed) == len(state.segments):
        # There is always an active segment; one that goes is replaced first.
        roll_log(state, resources, state.log_end_offset)
    if not doomed:
        return 0
    delete_segments(state, resources, doomed, decision.reason.value)
    first = state.segments.first.base_offset
    state.first_local_offset = max(state.first_local_offset, first)
    if not state.config.copied_to_remote and first > state.log_start_offset:
        state.log_start_offset = first
        state.producers.truncate_start(first)
        if state.leader_epochs.truncate_from_start(first):
            state.epochs_saved = False
    return len(doomed)


def _facts(segments: LogSegments) -> Iterator[SegmentFacts]:
    """Made as they are looked at: nearly always the oldest segment stays, and a log may have ten thousand."""
    for segment, following in pairwise(chain(segments.oldest_first(), [None])):
        assert segment is not None
        yield SegmentFacts(
            segment.base_offset,
            None if following is None else following.base_offset,
            segment.size_bytes,
            segment.largest_timestamp_ms,
        )


def _policy(state: LogState) -> LocalRetentionPolicy:
    config = state.config
    return LocalRetentionPolicy(
        retention_ms=config.effective_local_retention_ms,
        retention_bytes=config.effective_local_retention_bytes,
        delete=config.delete,
        copied_to_remote=config.copied_to_remote,
        log_start_offset=state.log_start_offset,
        start_offset=(
            state.local_log_start_offset if config.copied_to_remote else state.log_start_offset
        ),
        high_watermark=state.high_watermark,
        log_end_offset=state.log_end_offset,
        highest_offset_in_remote_storage=state.highest_offset_in_remote_storage,
        size_bytes=state.segments.size_bytes,
    )
