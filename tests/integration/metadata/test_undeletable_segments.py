"""Segments that cannot be deleted, however many, keep nothing else from being deleted (SR-17)."""

import builders
import pytest
from aquifer_core.clock import SystemClock
from aquifer_core.ids import RemoteLogSegmentId
from aquifer_core.ports import RetentionPolicy
from aquifer_metadata.adapters.postgres.change_signal import ChangeSignal
from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.remote_log_metadata_manager import (
    PostgresRemoteLogMetadataManager,
)
from aquifer_metadata.adapters.postgres.remote_log_retention import (
    RemoteLogRetention,
    RetentionSizes,
)
from contract.remote_log_metadata.steps import DELETED, DELETING, brought_to, move, update

UNDELETABLE = 7
NOW_MS = builders.BASE_TIMESTAMP_MS + 1_000_000_000
POLICY = RetentionPolicy(
    retention_ms=0, retention_bytes=-1, log_start_offset=0, log_end_offset=1_000
)


@pytest.mark.parametrize(
    "sizes",
    [
        RetentionSizes(candidates=2),
        RetentionSizes(candidates=2, whole=1, page=3, first_step=1),
    ],
    ids=["one page", "several pages"],
)
async def test_what_can_be_deleted_is_chosen_beside_more_than_a_message_of_what_cannot(
    metadata_database: Database, sizes: RetentionSizes
) -> None:
    """Each run tries what it is given; of the undeletable ones all are tried again before any is for the third time."""
    rlmm = PostgresRemoteLogMetadataManager(
        metadata_database, ChangeSignal(metadata_database), clock=SystemClock(), trace_id=lambda: ""
    )
    retention = RemoteLogRetention(metadata_database, sizes)
    partition = builders.topic_id_partition()
    segments = [
        builders.remote_segment(partition, start, start + 9)
        for start in range(0, 10 * (UNDELETABLE + 3), 10)
    ]
    undeletable = {segment.segment_id for segment in segments[:UNDELETABLE]}
    for number, segment in enumerate(segments):
        # The last but one could have been deleted, and was not reached so far.
        begun = number < UNDELETABLE or number == len(segments) - 2
        await brought_to(rlmm, segment, *([DELETING] if begun else []))
    attempts: dict[RemoteLogSegmentId, int] = {}
    for run in range(UNDELETABLE):
        plan = await retention.plan(partition, {0: 0}, POLICY, NOW_MS)
        for candidate in plan.candidates:
            segment = candidate.metadata
            attempts[segment.segment_id] = attempts.get(segment.segment_id, 0) + 1
            tried = update(segment, DELETING, event_timestamp_ms=NOW_MS + run)
            await rlmm.update_remote_log_segment_metadata(tried)
            if segment.segment_id not in undeletable:
                await move(rlmm, segment, DELETED)
    assert {segment.segment_id async for segment in rlmm.list_remote_log_segments(partition)} == (
        undeletable
    )
    assert set(attempts) == {segment.segment_id for segment in segments}
    assert max(attempts.values()) <= 2
