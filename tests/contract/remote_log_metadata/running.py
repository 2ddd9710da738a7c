"""Segments that follow each other: an ability that this suite's metadata managers have."""

import builders
import pytest
from aquifer_core.errors import RemoteResourceNotFoundError
from aquifer_core.ids import TopicIdPartition
from aquifer_core.segment import RemotePartitionDeleteMetadata
from aquifer_core.segment_run import MAX_RUN_SEGMENTS, SegmentRun, SegmentRuns
from contract.remote_log_metadata.steps import (
    DELETING,
    DELETION_STARTED,
    FORGOTTEN,
    MARKED,
    Manager,
    brought_to,
    move,
    tip,
)

FAR = 1 << 40


async def run(
    rlmm: Manager, partition: TopicIdPartition, epoch: int, offset: int, max_bytes: int = FAR
) -> SegmentRun:
    assert isinstance(rlmm, SegmentRuns)
    return await rlmm.segment_run(partition, epoch, offset, max_bytes)


def borders(found: SegmentRun) -> list[tuple[int, int]]:
    return [(each.start_offset, each.end_offset) for each in found.segments]


class RunContract:
    async def test_a_run_begins_with_the_holder_of_the_offset_and_ends_at_a_gap(
        self, rlmm: Manager
    ) -> None:
        partition = tip()
        for bounds in [(0, 9), (10, 19), (20, 29), (40, 49)]:
            await brought_to(rlmm, builders.remote_segment(partition, *bounds))
        assert borders(await run(rlmm, partition, 0, 15)) == [(10, 19), (20, 29)]
        assert borders(await run(rlmm, partition, 0, 40)) == [(40, 49)]
        for nothing in (30, 50):
            assert (await run(rlmm, partition, 0, nothing)).segments == ()
        assert (await run(rlmm, partition, 1, 15)).segments == ()
        assert (await run(rlmm, tip(), 0, 0)).segments == ()

    async def test_a_run_holds_about_as_many_bytes_as_asked_for_and_at_least_a_segment(
        self, rlmm: Manager
    ) -> None:
        partition = tip()
        for start in range(0, 40, 10):
            made = builders.remote_segment(partition, start, start + 9, segment_size_bytes=1000)
            await brought_to(rlmm, made)
        for max_bytes, segments in [(0, 1), (500, 1), (501, 2), (1500, 2), (1501, 3), (FAR, 4)]:
            found = await run(rlmm, partition, 0, 5, max_bytes)
            assert len(found.segments) == segments, max_bytes

    async def test_a_run_has_a_bounded_number_of_segments(self, rlmm: Manager) -> None:
        partition = tip()
        for offset in range(MAX_RUN_SEGMENTS + 2):
            await brought_to(rlmm, builders.remote_segment(partition, offset, offset))
        found = await run(rlmm, partition, 0, 1)
        assert [each.start_offset for each in found.segments] == [*range(1, MAX_RUN_SEGMENTS + 1)]

    async def test_only_finished_segments_that_no_other_covers_are_in_a_run(
        self, rlmm: Manager
    ) -> None:
        """K-2.2: what is copied or deleted does not exist for a reader."""
        partition = tip()
        for bounds in [(0, 99), (50, 149), (10, 60)]:
            await brought_to(rlmm, builders.remote_segment(partition, *bounds))
        gone = await brought_to(rlmm, builders.remote_segment(partition, 150, 199))
        await rlmm.add_remote_log_segment_metadata(builders.remote_segment(partition, 200, 299))
        assert borders(await run(rlmm, partition, 0, 20)) == [(0, 99), (50, 149), (150, 199)]
        await move(rlmm, gone, DELETING)
        assert borders(await run(rlmm, partition, 0, 20)) == [(0, 99), (50, 149)]
        assert borders(await run(rlmm, partition, 0, 50)) == [(50, 149)]

    async def test_a_run_stays_in_its_leader_epoch(self, rlmm: Manager) -> None:
        partition = tip()
        for start, end, epochs in [
            (0, 9, {0: 0}),
            (10, 19, {0: 10, 2: 15}),
            (20, 29, {2: 20}),
        ]:
            made = builders.remote_segment(partition, start, end, segment_leader_epochs=epochs)
            await brought_to(rlmm, made)
        assert borders(await run(rlmm, partition, 0, 0)) == [(0, 9), (10, 19)]
        assert (await run(rlmm, partition, 0, 15)).segments == ()
        assert borders(await run(rlmm, partition, 2, 15)) == [(10, 19), (20, 29)]

    async def test_transactions_are_expected_where_any_segment_from_the_first_on_may_have_them(
        self, rlmm: Manager
    ) -> None:
        """KIP-1058; far behind the run, behind a gap and in later epochs as well."""
        partition = tip()
        for start, epoch, empty in [(0, 0, False), (10, 0, True), (20, 0, True), (30, 1, True)]:
            made = builders.remote_segment(
                partition,
                start,
                start + 9,
                txn_index_empty=empty,
                segment_leader_epochs={epoch: start},
            )
            await brought_to(rlmm, made)
        expectations = [
            (await run(rlmm, partition, epoch, offset, 1)).may_have_transactions
            for epoch, offset in [(0, 5), (0, 10), (0, 25), (1, 30)]
        ]
        assert expectations == [True, False, False, False]
        later = builders.remote_segment(
            partition, 60, 69, txn_index_empty=False, segment_leader_epochs={3: 60}
        )
        await brought_to(rlmm, later)
        for epoch, offset in [(0, 10), (1, 30)]:
            assert (await run(rlmm, partition, epoch, offset, 1)).may_have_transactions
        await move(rlmm, later, DELETING)
        assert not (await run(rlmm, partition, 0, 10, 1)).may_have_transactions
        behind_a_gap = builders.remote_segment(partition, 50, 59, txn_index_empty=False)
        await brought_to(rlmm, behind_a_gap)
        assert (await run(rlmm, partition, 0, 10, 1)).may_have_transactions
        assert not (await run(rlmm, partition, 1, 30, 1)).may_have_transactions

    async def test_a_forgotten_partition_has_no_run(self, rlmm: Manager) -> None:
        partition = tip()
        await brought_to(rlmm, builders.remote_segment(partition, 0, 99))
        for state in (MARKED, DELETION_STARTED, FORGOTTEN):
            await rlmm.put_remote_partition_delete_metadata(
                RemotePartitionDeleteMetadata(
                    topic_id_partition=partition, state=state, event_timestamp_ms=1, broker_id=1
                )
            )
        with pytest.raises(RemoteResourceNotFoundError):
            await run(rlmm, partition, 0, 0)
