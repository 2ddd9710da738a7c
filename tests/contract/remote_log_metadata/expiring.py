"""The contract of the RemoteLogMetadataManager: retention, and deletions of partitions."""

from dataclasses import replace

import builders
import pytest
from aquifer_core.errors import (
    ErrorReason,
    InvalidStateTransitionError,
    PreconditionError,
    RemoteResourceNotFoundError,
)
from aquifer_core.ports import (
    RetentionPolicy,
    RetentionReason,
)
from aquifer_core.segment import (
    RemotePartitionDeleteMetadata,
)
from aquifer_core.state import RemotePartitionDeleteState
from contract.remote_log_metadata.steps import (
    DELETED,
    DELETING,
    DELETION_STARTED,
    FORGOTTEN,
    MARKED,
    Manager,
    brought_to,
    deletions,
    found,
    listed,
    move,
    move_deletion,
    tip,
)

NOW_MS = builders.BASE_TIMESTAMP_MS + 1_000_000_000

_LINEAGE = {0: 0, 1: 10, 2: 20, 3: 30, 4: 40, 5: 50, 7: 70}
_SHORT_LINEAGE = {7: 51, 9: 100}
LINEAGE_VECTORS = [
    *(
        (_LINEAGE, 90, end_offset, epochs, inside)
        for end_offset, epochs, inside in [
            (35, {1: 15, 2: 20, 3: 30}, True),
            (19, {1: 15}, True),
            (5, {0: 0}, True),
            (75, {7: 70}, True),
            (29, {1: 15, 2: 20}, True),
            (85, {5: 55, 6: 60, 7: 70}, False),
            (45, {1: 15, 2: 20, 4: 40}, False),
            (35, {1: 15, 2: 20}, False),
            (25, {1: 5, 2: 20}, False),
            (90, {7: 70}, False),
        ]
    ),
    *(
        (_SHORT_LINEAGE, 210, end_offset, epochs, inside)
        for end_offset, epochs, inside in [
            (150, {5: 14, 7: 15, 9: 100}, True),
            (150, {2: 5, 3: 6}, False),
            (250, {7: 15, 9: 100, 10: 200}, False),
            (150, {8: 75}, False),
            (150, {7: 15, 9: 101}, False),
            (150, {9: 99}, False),
        ]
    ),
]
"""(lineage, log end offset, end of the segment, its epochs, whether the lineage wrote it): K-3.4."""


class RetentionContract:
    """Choosing what to delete; the arithmetic has tests of its own."""

    async def test_retention_is_decided_over_what_is_listed(self, rlmm: Manager) -> None:
        """SR-10, SR-11, SR-17."""
        partition = tip()
        old, kept = [
            await brought_to(rlmm, builders.remote_segment(partition, start, start + 99))
            for start in (0, 100)
        ]
        unfinished = await brought_to(rlmm, builders.remote_segment(partition, 200, 299), DELETING)
        copying = builders.remote_segment(partition, 300, 399)
        await rlmm.add_remote_log_segment_metadata(copying)
        policy = RetentionPolicy(
            retention_ms=-1, retention_bytes=1024, log_start_offset=0, log_end_offset=400
        )
        now_ms = copying.event_timestamp_ms + 1
        plan = await rlmm.list_retention_candidates(partition, {0: 0}, policy, now_ms)
        assert [(chosen.metadata, chosen.reason) for chosen in plan.candidates] == [
            (old, RetentionReason.RETENTION_SIZE),
            (unfinished, RetentionReason.DELETE_UNFINISHED),
        ]
        assert (plan.new_log_start_offset, plan.remote_bytes) == (100, 2 * 1024)
        policy = replace(policy, retention_bytes=-1, in_progress=frozenset({kept.segment_id.id}))
        plan = await rlmm.list_retention_candidates(partition, {0: 0}, policy, now_ms)
        assert plan.candidates == ()
        assert plan.new_log_start_offset is None
        assert len(await listed(rlmm, partition)) == 4, "nothing is changed"

    async def test_the_oldest_that_are_too_much_are_chosen_and_no_more(self, rlmm: Manager) -> None:
        """K-3.4: 50 segments of 1024 bytes in the epochs 0@0, 1@20, 3@50, 4@100, and 512 bytes that are local alone."""
        partition, lineage = tip(), {0: 0, 1: 20, 3: 50, 4: 100}
        for start in range(0, 5_000, 100):
            inside = {epoch: at for epoch, at in lineage.items() if start <= at < start + 100}
            before = max(epoch for epoch, at in lineage.items() if at <= start)
            epochs = {before: start} | inside
            await brought_to(rlmm, builders.remote_segment(partition, start, start + 99, epochs))
        for count in (0, 1, 23, 50):
            policy = RetentionPolicy(
                retention_ms=-1,
                retention_bytes=(50 - count) * 1024 + 512,
                log_start_offset=0,
                log_end_offset=5_000,
                local_only_bytes=512,
            )
            plan = await rlmm.list_retention_candidates(partition, lineage, policy, NOW_MS)
            assert [chosen.metadata.start_offset for chosen in plan.candidates] == [
                *range(0, count * 100, 100)
            ]
            assert plan.new_log_start_offset == (count * 100 or None)
            assert plan.remote_bytes == 50 * 1024

    async def test_only_segments_of_the_lineage_expire(self, rlmm: Manager) -> None:
        """K-3.4: `isRemoteSegmentWithinLeaderEpochs`."""
        for lineage, log_end_offset, end_offset, epochs, inside in LINEAGE_VECTORS:
            partition, start_offset = tip(), min(epochs.values())
            metadata = builders.remote_segment(partition, start_offset, end_offset, epochs)
            await brought_to(rlmm, metadata)
            policy = RetentionPolicy(
                retention_ms=0,
                retention_bytes=-1,
                log_start_offset=0,
                log_end_offset=log_end_offset,
            )
            plan = await rlmm.list_retention_candidates(partition, lineage, policy, NOW_MS)
            expired = RetentionReason.RETENTION_TIME in [each.reason for each in plan.candidates]
            assert expired is inside, (epochs, end_offset)
            assert plan.remote_bytes == (1024 if inside else 0)


class PartitionDeletionContract:
    """Deleting the remote data of a partition."""

    async def test_segments_stay_readable_until_the_deletion_has_finished(
        self, rlmm: Manager
    ) -> None:
        """K-7.3, testRemotePartitionDeletion."""
        partition = tip()
        metadata = await brought_to(
            rlmm, builders.remote_segment(partition, 0, 100, {0: 0, 1: 20, 2: 50, 3: 80})
        )
        await rlmm.update_earliest_log_offset(partition, 3, 3)
        assert await found(rlmm, partition, 1, 30) == metadata.segment_id
        for state in (MARKED, DELETION_STARTED):
            for _ in range(2):
                await move_deletion(rlmm, partition, state)
            assert await found(rlmm, partition, 1, 30) == metadata.segment_id
            with pytest.raises(PreconditionError) as refused:
                await rlmm.add_remote_log_segment_metadata(
                    builders.remote_segment(partition, 101, 200)
                )
            assert refused.value.reason is ErrorReason.INVALID_PARTITION_TRANSITION
        for _ in range(2):
            await move_deletion(rlmm, partition, FORGOTTEN)
            with pytest.raises(RemoteResourceNotFoundError) as gone:
                await found(rlmm, partition, 1, 30)
            assert gone.value.reason is ErrorReason.PARTITION_NOT_FOUND
        assert await listed(rlmm, partition) == []
        assert await listed(rlmm, partition, 1) == []
        assert await rlmm.highest_offset_for_epoch(partition, 1) is None
        assert await rlmm.earliest_log_offset(partition) is None
        assert await rlmm.remote_log_size(partition, 1) == 0

    async def test_history_outlives_the_partition_and_deletions_may_still_be_repeated(
        self, rlmm: Manager
    ) -> None:
        partition = tip()
        deleted = await brought_to(rlmm, builders.remote_segment(partition, 0, 9), DELETED)
        forgotten = await brought_to(rlmm, builders.remote_segment(partition, 10, 19))
        await move_deletion(rlmm, partition, MARKED, DELETION_STARTED, FORGOTTEN)
        for metadata in (deleted, forgotten):
            await move(rlmm, metadata, DELETED)
            history = await rlmm.segment_history(metadata.segment_id)
            assert history[-1].to_state is DELETED
        assert history[-1].reason == "partition deleted"

    @pytest.mark.parametrize(
        ("path", "refused_state"),
        [
            ((), DELETION_STARTED),
            ((), FORGOTTEN),
            ((MARKED,), FORGOTTEN),
            ((MARKED, DELETION_STARTED), MARKED),
            ((MARKED, DELETION_STARTED, FORGOTTEN), MARKED),
        ],
    )
    async def test_steps_of_a_deletion_cannot_be_left_out_or_taken_back(
        self,
        rlmm: Manager,
        path: tuple[RemotePartitionDeleteState, ...],
        refused_state: RemotePartitionDeleteState,
    ) -> None:
        partition = tip()
        await move_deletion(rlmm, partition, *path)
        with pytest.raises(InvalidStateTransitionError) as refused:
            await move_deletion(rlmm, partition, refused_state)
        assert refused.value.reason is ErrorReason.INVALID_PARTITION_TRANSITION
        assert refused.value.metadata == {
            "from": path[-1].name if path else "",
            "to": refused_state.name,
        }

    async def test_deletions_are_listed_from_the_first_step_to_the_last(
        self, rlmm: Manager
    ) -> None:
        """Whoever deletes remote data finds its work here, also after it has lost everything."""
        assert await deletions(rlmm) == []
        one, other = sorted([tip(), tip()])
        await brought_to(rlmm, builders.remote_segment(one, 0, 9))
        await brought_to(rlmm, builders.remote_segment(tip(), 0, 9))
        marked = RemotePartitionDeleteMetadata(
            topic_id_partition=one, state=MARKED, event_timestamp_ms=7, broker_id=3
        )
        for _ in range(2):
            await rlmm.put_remote_partition_delete_metadata(marked)
            assert await deletions(rlmm) == [marked]
        await move_deletion(rlmm, other, MARKED)
        started = replace(marked, state=DELETION_STARTED, event_timestamp_ms=8, broker_id=-1)
        await rlmm.put_remote_partition_delete_metadata(started)
        found = await deletions(rlmm)
        assert found[0] == started
        assert [each.topic_id_partition for each in found] == [one, other]
        await move_deletion(rlmm, one, FORGOTTEN)
        assert [each.topic_id_partition for each in await deletions(rlmm)] == [other]

    async def test_any_number_of_deletions_is_listed_in_order(self, rlmm: Manager) -> None:
        """More than a page, in topics of several partitions."""
        topics = [tip() for _ in range(3)]
        partitions = sorted(replace(each, partition=n) for each in topics for n in range(4))
        for partition in reversed(partitions):
            await move_deletion(rlmm, partition, MARKED)
        found = await deletions(rlmm)
        assert [each.topic_id_partition for each in found] == partitions
