"""What operators have paused, and listings that begin in the middle: abilities that this suite's metadata managers have."""

import builders
import pytest
from aquifer_core.errors import InvalidRequestError
from aquifer_core.segment import RemotePartitionDeleteMetadata
from aquifer_core.segment_listings import SegmentListings, segments_from
from aquifer_core.task_pauses import PauseTarget, TaskPause, TaskPauses
from contract.remote_log_metadata.steps import (
    DELETED,
    DELETION_STARTED,
    FORGOTTEN,
    MARKED,
    Manager,
    brought_to,
    tip,
)


def pauses_of(rlmm: Manager) -> TaskPauses:
    assert isinstance(rlmm, TaskPauses)
    return rlmm


async def paused(rlmm: Manager) -> dict[PauseTarget, TaskPause]:
    return {each.target: each async for each in pauses_of(rlmm).list_task_pauses()}


class PauseContract:
    async def test_what_is_paused_is_listed_until_it_is_resumed(self, rlmm: Manager) -> None:
        partition, other = tip(), tip()
        pauses = pauses_of(rlmm)
        await pauses.pause_tasks([])
        await pauses.resume_tasks([])
        assert await paused(rlmm) == {}
        targets: list[PauseTarget] = [partition, other, other.topic, "not yet there"]
        await pauses.pause_tasks(targets, paused_by="ann@desk", reason="looking for a loss")
        found = await paused(rlmm)
        assert found.keys() == set(targets)
        assert {(each.paused_by, each.reason) for each in found.values()} == {
            ("ann@desk", "looking for a loss")
        }
        assert all(each.since_ms > 0 for each in found.values())
        await pauses.resume_tasks([other.topic, partition, "never paused"])
        assert (await paused(rlmm)).keys() == {other, "not yet there"}

    async def test_a_pause_that_is_asked_for_again_stays_as_it_was(self, rlmm: Manager) -> None:
        partition = tip()
        pauses = pauses_of(rlmm)
        await pauses.pause_tasks([partition], paused_by="ann", reason="first")
        before = await paused(rlmm)
        await pauses.pause_tasks([partition, partition.topic], paused_by="bob", reason="second")
        after = await paused(rlmm)
        assert after[partition] == before[partition]
        assert after[partition.topic].paused_by == "bob"
        await pauses.resume_tasks([partition])
        await pauses.resume_tasks([partition])
        assert (await paused(rlmm)).keys() == {partition.topic}

    async def test_the_pause_of_a_partition_ends_when_its_remote_data_is_gone(
        self, rlmm: Manager
    ) -> None:
        """A topic made anew under the name stays paused when the name was."""
        partition = tip()
        await pauses_of(rlmm).pause_tasks([partition, partition.topic])
        for state in (MARKED, DELETION_STARTED, FORGOTTEN):
            assert partition in await paused(rlmm)
            await rlmm.put_remote_partition_delete_metadata(
                RemotePartitionDeleteMetadata(
                    topic_id_partition=partition, state=state, event_timestamp_ms=1, broker_id=-1
                )
            )
        assert (await paused(rlmm)).keys() == {partition.topic}

    async def test_texts_that_cannot_be_kept_are_refused(self, rlmm: Manager) -> None:
        for wrong in ({"paused_by": "x" * 1001}, {"reason": "x" * 1001}, {"reason": "a\0b"}):
            with pytest.raises(InvalidRequestError):
                await pauses_of(rlmm).pause_tasks([tip()], **wrong)
        with pytest.raises(InvalidRequestError):
            await pauses_of(rlmm).pause_tasks([""])
        assert await paused(rlmm) == {}

    async def test_a_listing_begins_at_any_offset(self, rlmm: Manager) -> None:
        partition = tip()
        assert isinstance(rlmm, SegmentListings)
        for start in (0, 100, 100, 200, 300):
            await rlmm.add_remote_log_segment_metadata(
                builders.remote_segment(partition, start, start + 99)
            )
        await brought_to(rlmm, builders.remote_segment(partition, 300, 399), DELETED)
        for first, starts in (
            (0, [0, 100, 100, 200, 300]),
            (100, [100, 100, 200, 300]),
            (101, [200, 300]),
            (301, []),
        ):
            found = [each async for each in rlmm.list_remote_log_segments_from(partition, first)]
            assert [each.start_offset for each in found] == starts
            assert [each async for each in segments_from(rlmm, partition, first)] == found
