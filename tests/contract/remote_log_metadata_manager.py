"""What every RemoteLogMetadataManager does (SR-14), whatever side of the wire it stands on."""

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import builders
import pytest
from aquifer_core.errors import (
    ErrorReason,
    InvalidRequestError,
    InvalidStateTransitionError,
    PreconditionError,
    RemoteResourceNotFoundError,
    StaleLeaderEpochError,
)
from aquifer_core.ids import RemoteLogSegmentId, TopicIdPartition
from aquifer_core.ports import (
    PartitionChange,
    RemoteLogMetadataManager,
    RetentionPolicy,
    RetentionReason,
)
from aquifer_core.segment import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)
from aquifer_core.state import RemoteLogSegmentState, RemotePartitionDeleteState

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
MARKED, DELETION_STARTED, FORGOTTEN = RemotePartitionDeleteState

Manager = RemoteLogMetadataManager
WAIT_S = 10

EPOCH_VECTORS: list[tuple[list[tuple[str, int, int]], int, dict[int, str | None]]] = [
    (
        [("A", 10, 100), ("B", 101, 200)],
        200,
        {9: None, 10: "A", 90: "A", 100: "A", 101: "B", 150: "B", 201: None},
    ),
    ([("A", 10, 100), ("B", 5, 150)], 150, {4: None, 5: "B", 11: "B", 150: "B", 151: None}),
    (
        [("A", 10, 100), ("B", 5, 150), ("C", 148, 155), ("D", 4, 200)],
        200,
        {4: "D", 11: "D", 149: "D", 200: "D"},
    ),
    ([("A", 10, 100), ("B", 10, 100)], 100, {11: "B"}),
    ([("A", 10, 100), ("B", 10, 150)], 150, {11: "B", 111: "B"}),
    # Where Kafka's own cache would hide what a shorter, later copy does not hold:
    ([("A", 10, 100), ("B", 20, 50)], 100, {15: "A", 30: "A", 60: "A"}),
    ([("A", 10, 100), ("B", 10, 50)], 100, {30: "A", 60: "A"}),
    ([("A", 10, 100), ("B", 50, 150)], 150, {49: "A", 50: "B", 100: "B", 150: "B"}),
]
"""(segments in the order they were finished, highest offset, offset -> segment found): K-2.2."""


def tip() -> TopicIdPartition:
    return builders.topic_id_partition()


def update(
    metadata: RemoteLogSegmentMetadata, state: RemoteLogSegmentState, **fields: Any
) -> RemoteLogSegmentMetadataUpdate:
    defaults: dict[str, Any] = {
        "segment_id": metadata.segment_id,
        "event_timestamp_ms": metadata.event_timestamp_ms + int(state),
        "state": state,
        "broker_id": metadata.broker_id,
        "custom_metadata": metadata.custom_metadata,
        "reason": state.name.lower(),
    }
    return RemoteLogSegmentMetadataUpdate(**(defaults | fields))


PATHS = {
    STARTED: (),
    FINISHED: (FINISHED,),
    DELETING: (FINISHED, DELETING),
    DELETED: (FINISHED, DELETING, DELETED),
}
"""How a segment gets into a state."""


async def brought_to(
    rlmm: Manager, metadata: RemoteLogSegmentMetadata, state: RemoteLogSegmentState = FINISHED
) -> RemoteLogSegmentMetadata:
    """Adds a segment and moves it to a state."""
    await rlmm.add_remote_log_segment_metadata(metadata)
    for step in PATHS[state]:
        change = update(metadata, step)
        await rlmm.update_remote_log_segment_metadata(change)
        metadata = metadata.with_update(change)
    return metadata


async def move(
    rlmm: Manager, metadata: RemoteLogSegmentMetadata, *states: RemoteLogSegmentState
) -> None:
    for state in states:
        await rlmm.update_remote_log_segment_metadata(update(metadata, state))


async def listed(
    rlmm: Manager, partition: TopicIdPartition, leader_epoch: int | None = None
) -> list[RemoteLogSegmentMetadata]:
    segments = rlmm.list_remote_log_segments(partition, leader_epoch)
    return [metadata async for metadata in segments]


async def found(
    rlmm: Manager, partition: TopicIdPartition, leader_epoch: int, offset: int
) -> RemoteLogSegmentId | None:
    metadata = await rlmm.remote_log_segment_metadata(partition, leader_epoch, offset)
    return None if metadata is None else metadata.segment_id


async def move_deletion(
    rlmm: Manager, partition: TopicIdPartition, *states: RemotePartitionDeleteState
) -> None:
    for state in states:
        await rlmm.put_remote_partition_delete_metadata(
            RemotePartitionDeleteMetadata(
                topic_id_partition=partition, state=state, event_timestamp_ms=1, broker_id=1
            )
        )


async def deletions(rlmm: Manager) -> list[RemotePartitionDeleteMetadata]:
    return [deletion async for deletion in rlmm.list_partition_deletions()]


async def changes(
    rlmm: Manager, partition: TopicIdPartition, from_version: int, count: int
) -> list[PartitionChange]:
    """The next changes of a partition."""
    received = []
    async with (
        asyncio.timeout(WAIT_S),
        aclosing(rlmm.watch_partition(partition, from_version)) as watch,  # type: ignore[type-var]
    ):
        async for change in watch:
            received.append(change)
            if len(received) == count:
                break
    return received


class LookupContract:
    """Finding segments."""

    async def test_a_segment_is_found_once_its_copy_has_finished(self, rlmm: Manager) -> None:
        partition = tip()
        metadata = builders.remote_segment(partition, 0, 100, custom_metadata=b"\x00\x01")
        await rlmm.add_remote_log_segment_metadata(metadata)
        assert await found(rlmm, partition, 0, 50) is None
        await move(rlmm, metadata, FINISHED)
        expected = metadata.with_update(update(metadata, FINISHED))
        assert await rlmm.remote_log_segment_metadata(partition, 0, 50) == expected

    async def test_lookups_in_one_epoch_are_those_of_the_vectors(self, rlmm: Manager) -> None:
        """K-2.2."""
        for segments, highest, lookups in EPOCH_VECTORS:
            partition = tip()
            names: dict[RemoteLogSegmentId | None, str | None] = {None: None}
            for name, start, end in segments:
                metadata = await brought_to(rlmm, builders.remote_segment(partition, start, end))
                names[metadata.segment_id] = name
            answers = {offset: names[await found(rlmm, partition, 0, offset)] for offset in lookups}
            assert answers == lookups, segments
            assert await rlmm.highest_offset_for_epoch(partition, 0) == highest
            assert len(await listed(rlmm, partition, 0)) == len(segments)

    async def test_the_life_of_segments_across_epochs_is_that_of_the_vectors(
        self, rlmm: Manager
    ) -> None:
        """K-7.3, RemoteLogSegmentLifecycleTest."""
        partition = tip()
        vectors = [
            (0, 100, {0: 0, 1: 20, 2: 80}),
            (101, 200, {2: 101}),
            (201, 300, {2: 201, 3: 240}),
            (250, 400, {3: 250, 4: 370}),
        ]
        segments = [
            await brought_to(rlmm, builders.remote_segment(partition, *vector))
            for vector in vectors
        ]
        for epoch, offset, number in [
            (1, 40, 0),
            (2, 110, 1),
            (3, 240, 2),
            (3, 250, 3),
            (4, 375, 3),
        ]:
            assert await found(rlmm, partition, epoch, offset) == segments[number].segment_id
        for epoch, offset in [(1, 110), (4, 401), (5, 301), (1, 19), (0, 20)]:
            assert await found(rlmm, partition, epoch, offset) is None
        highest = {0: 19, 1: 79, 2: 239, 3: 369, 4: 400, 5: None}
        for segment in [*segments, None]:
            for epoch, offset_ in highest.items():
                assert await rlmm.highest_offset_for_epoch(partition, epoch) == offset_
            if segment is not None:
                await move(rlmm, segment, DELETING, DELETED)
        assert await listed(rlmm, partition) == []

    async def test_what_a_deleted_copy_covered_is_found_again(self, rlmm: Manager) -> None:
        partition = tip()
        small, other, large = [
            await brought_to(rlmm, builders.remote_segment(partition, *bounds))
            for bounds in [(10, 100), (50, 150), (5, 200)]
        ]
        assert await found(rlmm, partition, 0, 60) == large.segment_id
        await move(rlmm, large, DELETING)
        assert await found(rlmm, partition, 0, 5) is None
        assert await found(rlmm, partition, 0, 40) == small.segment_id
        assert await found(rlmm, partition, 0, 60) == other.segment_id
        await move(rlmm, other, DELETING)
        assert await found(rlmm, partition, 0, 60) == small.segment_id

    async def test_of_equal_copies_the_one_finished_last_is_found_until_it_goes(
        self, rlmm: Manager
    ) -> None:
        partition = tip()
        copies = [
            await brought_to(rlmm, builders.remote_segment(partition, 10, 100)) for _ in range(3)
        ]
        for copy in reversed(copies):
            assert await found(rlmm, partition, 0, 50) == copy.segment_id
            await move(rlmm, copy, DELETING)
        assert await found(rlmm, partition, 0, 50) is None

    async def test_nothing_is_known_of_an_unknown_partition(self, rlmm: Manager) -> None:
        partition = tip()
        assert await found(rlmm, partition, 0, 0) is None
        assert await rlmm.highest_offset_for_epoch(partition, 0) is None
        assert await listed(rlmm, partition) == []
        assert await rlmm.remote_log_size(partition, 0) == 0
        assert await rlmm.earliest_log_offset(partition) is None
        assert await rlmm.is_ready(partition)

    async def test_the_next_segment_that_may_have_a_transaction_index_is_found_along_the_chain(
        self, rlmm: Manager
    ) -> None:
        """KIP-1058."""
        partition = tip()
        for start, empty in [(0, True), (10, True), (20, False), (30, True), (50, False)]:
            metadata = builders.remote_segment(partition, start, start + 9, txn_index_empty=empty)
            await brought_to(rlmm, metadata)

        async def next_start(offset: int, leader_epoch: int = 0) -> int | None:
            segment = await rlmm.next_segment_with_txn_index(partition, leader_epoch, offset)
            return None if segment is None else segment.start_offset

        assert [await next_start(offset) for offset in (0, 15, 20, 29)] == [20, 20, 20, 20]
        assert await next_start(30) is None, "offsets 40 to 49 are missing in between"
        assert await next_start(45) is None
        assert await next_start(55) == 50
        assert await next_start(60) is None
        assert await next_start(0, leader_epoch=1) is None

    async def test_the_segment_of_a_timestamp_is_the_first_of_the_lineage_that_reaches_it(
        self, rlmm: Manager
    ) -> None:
        partition = tip()
        stray = builders.remote_segment(partition, 0, 4, {7: 0}, max_timestamp_ms=5_000)
        await brought_to(rlmm, stray)
        copying = builders.remote_segment(partition, 0, 9, max_timestamp_ms=5_000)
        await rlmm.add_remote_log_segment_metadata(copying)
        for start, timestamp_ms in [(0, 100), (10, 300), (20, 200), (30, 400)]:
            metadata = builders.remote_segment(
                partition, start, start + 9, max_timestamp_ms=timestamp_ms
            )
            await brought_to(rlmm, metadata)

        async def start_of(timestamp_ms: int, min_end_offset: int = 0) -> int | None:
            segment = await rlmm.find_segment_for_timestamp(
                partition, {0: 0, 9: 1000}, timestamp_ms, min_end_offset
            )
            return None if segment is None else segment.start_offset

        assert [await start_of(at) for at in (0, 100, 101, 300, 301, 400)] == [0, 0, 10, 10, 30, 30]
        assert await start_of(401) is None
        assert await start_of(100, min_end_offset=20) == 20
        assert await rlmm.find_segment_for_timestamp(partition, {3: 0}, 0) is None


class ListingContract:
    """Listing segments and their sizes."""

    async def test_each_state_is_listed_until_the_deletion_has_finished(
        self, rlmm: Manager
    ) -> None:
        """K-7.3."""
        partition = tip()
        metadata = builders.remote_segment(partition, 0, 10)
        await rlmm.add_remote_log_segment_metadata(metadata)
        for state in (STARTED, FINISHED, DELETING):
            if state is not STARTED:
                await move(rlmm, metadata, state)
            assert [segment.state for segment in await listed(rlmm, partition)] == [state]
            assert [segment.state for segment in await listed(rlmm, partition, 0)] == [state]
            seen = await found(rlmm, partition, 0, 5)
            assert (seen is not None) == (state is FINISHED)
        await move(rlmm, metadata, DELETED)
        assert await listed(rlmm, partition) == []
        assert await listed(rlmm, partition, 0) == []

    async def test_listings_are_complete_and_in_order_of_start_offsets(self, rlmm: Manager) -> None:
        partition = tip()
        starts = [(number * 37) % 101 for number in range(40)]
        for start in starts:
            metadata = builders.remote_segment(
                partition, start, start + 5, {start % 2: start, 2: start + 3}
            )
            await rlmm.add_remote_log_segment_metadata(metadata)
        for epoch in (None, 0, 1, 2, 3):
            expected = [start for start in starts if epoch in (None, 2, start % 2)]
            segments = await listed(rlmm, partition, epoch)
            assert [segment.start_offset for segment in segments] == sorted(expected)

    async def test_the_size_of_an_epoch_is_the_sum_of_its_listing(self, rlmm: Manager) -> None:
        """K-7.3, TopicBasedRemoteLogMetadataManagerTest."""
        partition = tip()
        for number in range(6):
            await brought_to(rlmm, builders.remote_segment(partition, number * 10, number * 10 + 9))
        assert await rlmm.remote_log_size(partition, 0) == 6 * 1024
        assert await rlmm.remote_log_size(partition, 1) == 0
        other = tip()
        for start, epochs in [(0, {0: 0}), (10, {1: 10, 2: 15}), (20, {2: 20})]:
            await rlmm.add_remote_log_segment_metadata(
                builders.remote_segment(other, start, start + 9, epochs)
            )
        sizes = [await rlmm.remote_log_size(other, epoch) for epoch in (0, 1, 2)]
        assert sizes == [1024, 1024, 2 * 1024]


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
            (unfinished, RetentionReason.DELETE_UNFINISHED),
            (old, RetentionReason.RETENTION_SIZE),
        ]
        assert (plan.new_log_start_offset, plan.remote_bytes) == (100, 2 * 1024)
        policy = replace(policy, retention_bytes=-1, in_progress=frozenset({kept.segment_id.id}))
        plan = await rlmm.list_retention_candidates(partition, {0: 0}, policy, now_ms)
        assert plan.candidates == ()
        assert plan.new_log_start_offset is None
        assert len(await listed(rlmm, partition)) == 4, "nothing is changed"


class WatchContract:
    """Following the changes of a partition."""

    async def test_a_watch_from_the_beginning_shows_what_exists_and_then_what_happens(
        self, rlmm: Manager
    ) -> None:
        partition = tip()
        first = await brought_to(rlmm, builders.remote_segment(partition, 0, 9))
        await brought_to(rlmm, builders.remote_segment(partition, 10, 19), DELETED)
        await rlmm.update_earliest_log_offset(partition, 5, 1)
        async with (
            asyncio.timeout(WAIT_S),
            aclosing(rlmm.watch_partition(partition)) as watch,  # type: ignore[type-var]
        ):
            present = [await anext(watch) for _ in range(2)]
            assert [change.segment for change in present] == [first, None]
            assert present[1].earliest_log_offset == 5
            added = builders.remote_segment(partition, 20, 29)
            await rlmm.add_remote_log_segment_metadata(added)
            change = await anext(watch)
            assert change.segment == added
            await move_deletion(rlmm, partition, MARKED)
            assert (await anext(watch)).delete_state is MARKED
        versions = [change.version for change in present] + [change.version]
        assert versions == sorted(set(versions))

    async def test_a_watch_resumes_with_every_change_after_a_version(self, rlmm: Manager) -> None:
        partition = tip()
        metadata = builders.remote_segment(partition, 0, 9, custom_metadata=b"a")
        await rlmm.add_remote_log_segment_metadata(metadata)
        [added] = await changes(rlmm, partition, 0, 1)
        finished = update(metadata, FINISHED, custom_metadata=b"b")
        await rlmm.update_remote_log_segment_metadata(finished)
        await move(rlmm, metadata, DELETING, DELETED)
        missed = await changes(rlmm, partition, added.version, 3)
        assert [change.segment for change in missed] == [
            metadata.with_update(finished),
            metadata.with_update(update(metadata, DELETING)),
            metadata.with_update(update(metadata, DELETED)),
        ]
        again = await changes(rlmm, partition, missed[0].version, 2)
        assert again == missed[1:]

    async def test_a_watch_of_a_partition_nobody_knows_waits_for_its_first_change(
        self, rlmm: Manager
    ) -> None:
        partition = tip()
        metadata = builders.remote_segment(partition, 0, 9)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(changes(rlmm, partition, 0, 1))
            await rlmm.add_remote_log_segment_metadata(metadata)
        assert [change.segment for change in watching.result()] == [metadata]

    async def test_a_deleted_partition_shows_its_deletion_alone(self, rlmm: Manager) -> None:
        partition = tip()
        await brought_to(rlmm, builders.remote_segment(partition, 0, 9))
        await rlmm.update_earliest_log_offset(partition, 5, 1)
        await move_deletion(rlmm, partition, MARKED, DELETION_STARTED, FORGOTTEN)
        [change] = await changes(rlmm, partition, 0, 1)
        assert change.delete_state is FORGOTTEN


class RemoteLogMetadataManagerContract(
    LookupContract,
    ListingContract,
    WritingContract,
    FencingContract,
    PartitionDeletionContract,
    RetentionContract,
    WatchContract,
):
    """Derive from it and give a fixture `rlmm`: a configured manager that knows nothing yet."""

    async def test_writers_of_one_partition_do_not_lose_each_others_changes(
        self, rlmm: Manager
    ) -> None:
        partition = tip()
        segments = [
            builders.remote_segment(partition, start, start + 9) for start in range(0, 100, 10)
        ]
        async with asyncio.TaskGroup() as group:
            for metadata in segments:
                group.create_task(brought_to(rlmm, metadata))
        assert [segment.start_offset for segment in await listed(rlmm, partition)] == [
            *range(0, 100, 10)
        ]
        assert await rlmm.highest_offset_for_epoch(partition, 0) == 99
        received = await changes(rlmm, partition, 0, 10)
        assert len({change.version for change in received}) == 10

    async def test_closing_twice_does_no_harm(self, rlmm: Manager) -> None:
        await rlmm.close()
        await rlmm.close()
