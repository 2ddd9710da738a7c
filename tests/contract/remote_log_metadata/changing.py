"""The contract of the RemoteLogMetadataManager: states, repeats, history, and writers that were replaced."""

from dataclasses import replace

import builders
import pytest
from aquifer_core.errors import (
    ErrorReason,
    InvalidRequestError,
    InvalidStateTransitionError,
    RemoteResourceNotFoundError,
    StaleLeaderEpochError,
)
from aquifer_core.ids import RemoteLogSegmentId
from aquifer_core.ports import RetentionReason
from aquifer_core.segment_lifecycle import COPY_FAILED
from aquifer_core.state import RemoteLogSegmentState
from contract.remote_log_metadata.steps import (
    DELETED,
    DELETING,
    FINISHED,
    STARTED,
    Manager,
    brought_to,
    found,
    listed,
    move,
    tip,
    update,
)


class WritingContract:
    """Adding and updating segments."""

    async def test_a_segment_is_added_in_no_other_state_than_copy_segment_started(
        self, rlmm: Manager
    ) -> None:
        for state in (FINISHED, DELETING, DELETED):
            with pytest.raises(InvalidRequestError) as refused:
                await rlmm.add_remote_log_segment_metadata(
                    builders.remote_segment(tip(), 0, 1, state=state)
                )
            assert refused.value.reason is ErrorReason.INVALID_SEGMENT

    async def test_an_addition_may_be_repeated(self, rlmm: Manager) -> None:
        partition = tip()
        metadata = builders.remote_segment(partition, 0, 10, {3: 0})
        for _ in range(3):
            await rlmm.put_remote_log_segment_data(metadata, leader_epoch=3)
        assert await listed(rlmm, partition) == [metadata]
        assert len(await rlmm.segment_history(metadata.segment_id)) == 1

    async def test_an_id_is_never_used_for_another_segment(self, rlmm: Manager) -> None:
        partition = tip()
        metadata = builders.remote_segment(partition, 0, 10)
        await rlmm.add_remote_log_segment_metadata(metadata)
        elsewhere = RemoteLogSegmentId(tip(), metadata.segment_id.id)
        for other in (replace(metadata, end_offset=11), replace(metadata, segment_id=elsewhere)):
            with pytest.raises(InvalidRequestError) as refused:
                await rlmm.add_remote_log_segment_metadata(other)
            assert refused.value.reason is ErrorReason.INVALID_SEGMENT
        for state in (FINISHED, DELETING, DELETED):
            await move(rlmm, metadata, state)
            with pytest.raises(InvalidStateTransitionError):
                await rlmm.add_remote_log_segment_metadata(metadata)

    async def test_no_update_leads_back_to_copy_segment_started(self, rlmm: Manager) -> None:
        metadata = builders.remote_segment(tip(), 0, 1)
        await rlmm.add_remote_log_segment_metadata(metadata)
        with pytest.raises(InvalidRequestError) as refused:
            await move(rlmm, metadata, STARTED)
        assert refused.value.reason is ErrorReason.INVALID_SEGMENT

    async def test_an_unknown_segment_is_not_found(self, rlmm: Manager) -> None:
        partition = tip()
        known = await brought_to(rlmm, builders.remote_segment(partition, 0, 10))
        unknown = builders.remote_segment(partition, 0, 10)
        elsewhere = replace(known, segment_id=RemoteLogSegmentId(tip(), known.segment_id.id))
        for metadata in (unknown, elsewhere):
            for state in (FINISHED, DELETING, DELETED):
                with pytest.raises(RemoteResourceNotFoundError) as refused:
                    await move(rlmm, metadata, state)
                assert refused.value.reason is ErrorReason.SEGMENT_NOT_FOUND

    @pytest.mark.parametrize(
        ("source", "target"),
        [
            (STARTED, DELETED),
            (FINISHED, DELETED),
            (DELETING, FINISHED),
            (DELETED, FINISHED),
            (DELETED, DELETING),
        ],
    )
    async def test_a_forbidden_transition_is_refused_and_changes_nothing(
        self, rlmm: Manager, source: RemoteLogSegmentState, target: RemoteLogSegmentState
    ) -> None:
        """K-1.3; Kafka's own manager drops it silently."""
        partition = tip()
        metadata = await brought_to(rlmm, builders.remote_segment(partition, 0, 10), source)
        before = await listed(rlmm, partition)
        with pytest.raises(InvalidStateTransitionError) as refused:
            await move(rlmm, metadata, target)
        assert refused.value.metadata == {
            "from": source.name,
            "to": target.name,
            "segmentId": str(metadata.segment_id.id),
        }
        assert await listed(rlmm, partition) == before

    async def test_every_update_may_be_repeated_also_when_the_segment_is_gone(
        self, rlmm: Manager
    ) -> None:
        """A client that lost the answer asks again."""
        partition = tip()
        metadata = builders.remote_segment(partition, 0, 10, custom_metadata=b"x")
        await rlmm.add_remote_log_segment_metadata(metadata, leader_epoch=1)
        for state in (FINISHED, DELETING, DELETED):
            for _ in range(3):
                await rlmm.update_remote_log_segment_metadata(
                    update(metadata, state), leader_epoch=1
                )
        history = await rlmm.segment_history(metadata.segment_id)
        assert [event.to_state for event in history] == [STARTED, FINISHED, DELETING, DELETED]

    async def test_a_copy_that_failed_is_deleted_without_ever_being_seen(
        self, rlmm: Manager
    ) -> None:
        partition = tip()
        metadata = builders.remote_segment(partition, 0, 10)
        await rlmm.add_remote_log_segment_metadata(metadata)
        await move(rlmm, metadata, DELETING, DELETED)
        assert await rlmm.highest_offset_for_epoch(partition, 0) is None

    @pytest.mark.parametrize("reason", [COPY_FAILED, RetentionReason.COPY_ABANDONED.value])
    async def test_a_copy_that_has_finished_is_not_deleted_as_one_that_has_not(
        self, rlmm: Manager, reason: str
    ) -> None:
        """Whoever takes a copy of another manager for abandoned decides by what it saw before."""
        partition = tip()
        metadata = await brought_to(rlmm, builders.remote_segment(partition, 0, 10))
        with pytest.raises(InvalidStateTransitionError) as refused:
            await rlmm.update_remote_log_segment_metadata(update(metadata, DELETING, reason=reason))
        assert refused.value.metadata["from"] == FINISHED.name
        assert await found(rlmm, partition, 0, 3) == metadata.segment_id
        await move(rlmm, metadata, DELETING)
        await rlmm.update_remote_log_segment_metadata(update(metadata, DELETED, reason=reason))
        assert await listed(rlmm, partition) == []

    async def test_an_update_replaces_custom_metadata_also_by_none(self, rlmm: Manager) -> None:
        partition = tip()
        metadata = builders.remote_segment(partition, 0, 10)
        await rlmm.add_remote_log_segment_metadata(metadata)
        for custom_metadata in (b"\x01\x02", b"", None):
            change = update(metadata, FINISHED, custom_metadata=custom_metadata, broker_id=7)
            await rlmm.update_remote_log_segment_metadata(change)
            [segment] = await listed(rlmm, partition)
            assert segment == metadata.with_update(change)
        assert await found(rlmm, partition, 0, 3) == metadata.segment_id

    async def test_history_says_who_changed_what_when_and_why(self, rlmm: Manager) -> None:
        metadata = builders.remote_segment(tip(), 0, 10)
        await rlmm.add_remote_log_segment_metadata(metadata, leader_epoch=4)
        await rlmm.update_remote_log_segment_metadata(
            update(metadata, FINISHED, broker_id=2, reason="copied"), leader_epoch=5
        )
        await rlmm.update_remote_log_segment_metadata(
            update(metadata, DELETING, broker_id=3, reason="retention time")
        )
        await rlmm.update_remote_log_segment_metadata(update(metadata, DELETED, broker_id=3))
        history = await rlmm.segment_history(metadata.segment_id)
        assert [
            (event.from_state, event.to_state, event.broker_id, event.leader_epoch, event.reason)
            for event in history
        ] == [
            (None, STARTED, 1, 4, "copy started"),
            (STARTED, FINISHED, 2, 5, "copied"),
            (FINISHED, DELETING, 3, None, "retention time"),
            (DELETING, DELETED, 3, None, "delete_segment_finished"),
        ]
        assert {event.segment_id for event in history} == {metadata.segment_id}
        assert sorted(event.sequence for event in history) == [e.sequence for e in history]
        assert all(event.timestamp_ms > builders.BASE_TIMESTAMP_MS for event in history)
        assert await rlmm.segment_history(RemoteLogSegmentId.generate(tip())) == []


class FencingContract:
    """Leaders that have been replaced."""

    async def test_a_replaced_leader_can_neither_start_nor_finish_a_copy(
        self, rlmm: Manager
    ) -> None:
        """T12: the zombie leader's commit is refused."""
        partition = tip()
        metadata = builders.remote_segment(partition, 0, 10)
        await rlmm.add_remote_log_segment_metadata(metadata, leader_epoch=3)
        await rlmm.on_partition_leadership_changes({partition: 5}, [])
        with pytest.raises(StaleLeaderEpochError) as refused:
            await rlmm.update_remote_log_segment_metadata(
                update(metadata, FINISHED), leader_epoch=3
            )
        assert refused.value.metadata == {"given": "3", "current": "5"}
        with pytest.raises(StaleLeaderEpochError):
            await rlmm.add_remote_log_segment_metadata(metadata, leader_epoch=4)
        with pytest.raises(StaleLeaderEpochError):
            await rlmm.update_earliest_log_offset(partition, 7, 4)
        assert await rlmm.earliest_log_offset(partition) is None
        assert [segment.state for segment in await listed(rlmm, partition)] == [STARTED]
        await rlmm.update_remote_log_segment_metadata(update(metadata, DELETING), leader_epoch=5)

    async def test_a_write_of_a_newer_leader_fences_the_older_one(self, rlmm: Manager) -> None:
        partition = tip()
        metadata = builders.remote_segment(partition, 0, 10)
        await rlmm.add_remote_log_segment_metadata(metadata, leader_epoch=3)
        other = builders.remote_segment(partition, 0, 10)
        await rlmm.add_remote_log_segment_metadata(other, leader_epoch=4)
        with pytest.raises(StaleLeaderEpochError):
            await rlmm.update_remote_log_segment_metadata(
                update(metadata, FINISHED), leader_epoch=3
            )

    async def test_writes_that_are_not_a_leaders_are_not_fenced(self, rlmm: Manager) -> None:
        partition = tip()
        await rlmm.on_partition_leadership_changes({partition: 9}, [tip()])
        metadata = builders.remote_segment(partition, 0, 10)
        await brought_to(rlmm, metadata, DELETED)

    async def test_an_older_leadership_change_that_arrives_late_takes_nothing_back(
        self, rlmm: Manager
    ) -> None:
        partition = tip()
        for epoch in (5, 3):
            await rlmm.on_partition_leadership_changes({partition: epoch}, [])
        with pytest.raises(StaleLeaderEpochError):
            await rlmm.add_remote_log_segment_metadata(
                builders.remote_segment(partition, 0, 10), leader_epoch=4
            )
        await rlmm.on_stop_partitions([partition])
        with pytest.raises(StaleLeaderEpochError):
            await rlmm.update_earliest_log_offset(partition, 1, 4)

    async def test_the_earliest_log_offset_only_rises(self, rlmm: Manager) -> None:
        """SR-14, SR-17."""
        partition = tip()
        for offset, expected in [(0, 0), (50, 50), (20, 50), (50, 50), (60, 60)]:
            await rlmm.update_earliest_log_offset(partition, offset, 2)
            assert await rlmm.earliest_log_offset(partition) == expected
