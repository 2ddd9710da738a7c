"""Many partitions in a few numbers: an ability that this suite's metadata managers have."""

import builders
import pytest
from aquifer_core.errors import InvalidRequestError
from aquifer_core.ids import TopicIdPartition
from aquifer_core.partition_summary import (
    MAX_SUMMARIES,
    PartitionSummaries,
    PartitionSummary,
)
from aquifer_core.segment import RemotePartitionDeleteMetadata
from contract.remote_log_metadata.steps import (
    DELETED,
    DELETING,
    DELETION_STARTED,
    FORGOTTEN,
    MARKED,
    Manager,
    brought_to,
    move,
    tip,
)


async def summary(
    rlmm: Manager, partition: TopicIdPartition, known: int | None = None
) -> PartitionSummary | None:
    assert isinstance(rlmm, PartitionSummaries)
    (found,) = await rlmm.partition_summaries([(partition, known)])
    return found


class SummaryContract:
    async def test_an_unknown_partition_has_nothing(self, rlmm: Manager) -> None:
        assert await summary(rlmm, tip()) == PartitionSummary(version=0)

    async def test_segments_are_counted_and_their_borders_told(self, rlmm: Manager) -> None:
        partition = tip()
        await brought_to(rlmm, builders.remote_segment(partition, 0, 99, max_timestamp_ms=7000))
        await brought_to(
            rlmm, builders.remote_segment(partition, 100, 199, max_timestamp_ms=5000), DELETING
        )
        copying = builders.remote_segment(partition, 200, 299, max_timestamp_ms=9000)
        await rlmm.add_remote_log_segment_metadata(copying)
        await rlmm.update_earliest_log_offset(partition, 40, 0)
        found = await summary(rlmm, partition)
        assert found is not None
        assert found.version > 0
        assert found == PartitionSummary(
            version=found.version,
            earliest_log_offset=40,
            segments=3,
            unfinished_segments=2,
            oldest_timestamp_ms=5000,
            highest_end_offset=299,
            highest_offsets={0: 199},
        )

    async def test_a_segment_without_time_counts_by_its_last_change(self, rlmm: Manager) -> None:
        partition = tip()
        made = builders.remote_segment(partition, 0, 99, max_timestamp_ms=-1)
        await rlmm.add_remote_log_segment_metadata(made)
        found = await summary(rlmm, partition)
        assert found is not None
        assert found.oldest_timestamp_ms == made.event_timestamp_ms

    async def test_only_what_changed_since_the_known_version_is_told(self, rlmm: Manager) -> None:
        assert isinstance(rlmm, PartitionSummaries)
        changed, same = tip(), tip()
        for partition in (changed, same):
            await brought_to(rlmm, builders.remote_segment(partition, 0, 99))
        before = await rlmm.partition_summaries([(changed, None), (same, None)])
        known = [-1 if each is None else each.version for each in before]
        await brought_to(rlmm, builders.remote_segment(changed, 100, 199))
        after = await rlmm.partition_summaries(
            [*zip((changed, same), known, strict=True), (same, None)]
        )
        assert after[0] is not None
        assert after[0].segments == 2
        assert after[1:] == [None, before[1]]

    async def test_highest_offsets_outlive_their_segments(self, rlmm: Manager) -> None:
        """K-3.2: what was copied once is not copied again after retention deleted it."""
        partition = tip()
        gone = await brought_to(rlmm, builders.remote_segment(partition, 0, 99))
        await move(rlmm, gone, DELETING, DELETED)
        found = await summary(rlmm, partition)
        assert found is not None
        assert (found.segments, found.highest_offsets) == (0, {0: 99})

    async def test_a_forgotten_partition_has_nothing_but_a_version(self, rlmm: Manager) -> None:
        partition = tip()
        await brought_to(rlmm, builders.remote_segment(partition, 0, 99))
        await rlmm.update_earliest_log_offset(partition, 40, 0)
        for state in (MARKED, DELETION_STARTED, FORGOTTEN):
            await rlmm.put_remote_partition_delete_metadata(
                RemotePartitionDeleteMetadata(
                    topic_id_partition=partition, state=state, event_timestamp_ms=1, broker_id=1
                )
            )
        found = await summary(rlmm, partition)
        assert found is not None
        assert found == PartitionSummary(version=found.version)

    async def test_too_many_partitions_are_refused(self, rlmm: Manager) -> None:
        assert isinstance(rlmm, PartitionSummaries)
        with pytest.raises(InvalidRequestError):
            await rlmm.partition_summaries([(tip(), None)] * (MAX_SUMMARIES + 1))
