"""The contract of the RemoteLogMetadataManager: finding and listing segments."""

import builders
from aquifer_core.ids import RemoteLogSegmentId
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
