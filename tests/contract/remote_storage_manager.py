"""What every RemoteStorageManager does (SR-13), whatever side of the wire it stands on."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import builders
import pytest
from aquifer_core.errors import (
    CorruptIndexError,
    CorruptRecordError,
    ErrorReason,
    InvalidRequestError,
    OffsetOutOfRangeError,
    PositionOutOfRangeError,
    RemoteResourceNotFoundError,
)
from aquifer_core.formats import transaction_index
from aquifer_core.formats.record_batch import iter_batches
from aquifer_core.formats.remote_log_index import RemoteLogIndex
from aquifer_core.formats.transaction_index import AbortedTransaction
from aquifer_core.ports import RemoteStorageManager
from aquifer_core.segment import IndexType, RemoteLogSegmentMetadata


async def joined(pieces: AsyncIterator[bytes | memoryview]) -> bytes:
    """Everything that an iterator yields."""
    return b"".join([bytes(piece) async for piece in pieces])


async def copied(
    rsm: RemoteStorageManager, segment: builders.BuiltSegment
) -> RemoteLogSegmentMetadata:
    """Copy a segment and return its metadata as metadata managers keep it."""
    result = await rsm.copy_log_segment_data(segment.metadata, segment.data)
    return replace(segment.metadata, custom_metadata=result.custom_metadata)


class RemoteStorageManagerContract:
    """Derive from it and give a fixture `rsm`: a configured manager over an empty store."""

    async def test_a_copied_segment_reads_back_byte_for_byte(
        self, rsm: RemoteStorageManager
    ) -> None:
        segment = builders.segment(size_bytes=300_000, piece_bytes=7_001)
        metadata = await copied(rsm, segment)
        assert await joined(rsm.fetch_log_segment(metadata, 0)) == segment.log

    async def test_a_segment_reads_back_without_its_custom_metadata(
        self, rsm: RemoteStorageManager
    ) -> None:
        segment = builders.segment()
        await copied(rsm, segment)
        assert await joined(rsm.fetch_log_segment(segment.metadata, 0)) == segment.log

    async def test_custom_metadata_that_is_not_its_own_does_no_harm(
        self, rsm: RemoteStorageManager
    ) -> None:
        segment = builders.segment()
        await copied(rsm, segment)
        for custom in (b"", b"x", b"\x01" + bytes(12), b"\x01" + b"\x00" * 8 + b"\x00\x00\x00\x05"):
            metadata = replace(segment.metadata, custom_metadata=custom)
            assert await joined(rsm.fetch_log_segment(metadata, 0)) == segment.log

    async def test_the_answer_of_a_copy_describes_the_log(self, rsm: RemoteStorageManager) -> None:
        segment = builders.segment()
        result = await rsm.copy_log_segment_data(segment.metadata, segment.data)
        assert result.log_sha256 == hashlib.sha256(segment.log).hexdigest()
        described = await rsm.describe_segment(segment.metadata)
        assert result.stored_bytes == described.stored_bytes
        assert described.codec != "none" or result.stored_bytes >= len(segment.log)
        assert result.custom_metadata is None or len(result.custom_metadata) <= 128
        index = await rsm.fetch_index(segment.metadata, IndexType.REMOTE_LOG_INDEX)
        assert result.remote_log_index == index

    async def test_a_repeated_copy_answers_as_the_first_and_overwrites_nothing(
        self, rsm: RemoteStorageManager
    ) -> None:
        segment = builders.segment(seed=1)
        other = builders.segment(
            builders.log_bytes(20_000, start_offset=100, seed=2), piece_bytes=5_000
        )
        first = await rsm.copy_log_segment_data(segment.metadata, segment.data)
        again = replace(other.data, log_segment=builders.BytesLogSource(data=other.log))
        metadata = replace(segment.metadata, segment_size_bytes=len(other.log))
        assert await rsm.copy_log_segment_data(metadata, again) == first
        assert await joined(rsm.fetch_log_segment(segment.metadata, 0)) == segment.log

    async def test_a_range_of_positions_is_inclusive_at_both_ends(
        self, rsm: RemoteStorageManager
    ) -> None:
        segment = builders.segment(size_bytes=60_000)
        metadata = await copied(rsm, segment)
        size = len(segment.log)
        for start, end in [(0, 0), (1, 2), (0, size - 1), (size - 1, size - 1), (777, 33_333)]:
            found = await joined(rsm.fetch_log_segment(metadata, start, end))
            assert found == segment.log[start : end + 1]

    async def test_an_end_position_past_the_end_is_cut(self, rsm: RemoteStorageManager) -> None:
        segment = builders.segment()
        metadata = await copied(rsm, segment)
        found = await joined(rsm.fetch_log_segment(metadata, 10, len(segment.log) + 10))
        assert found == segment.log[10:]

    async def test_a_start_position_past_the_end_is_refused(
        self, rsm: RemoteStorageManager
    ) -> None:
        segment = builders.segment()
        metadata = await copied(rsm, segment)
        with pytest.raises(PositionOutOfRangeError) as raised:
            await joined(rsm.fetch_log_segment(metadata, len(segment.log)))
        assert raised.value.metadata["sizeBytes"] == str(len(segment.log))

    async def test_positions_that_are_no_range_are_refused(self, rsm: RemoteStorageManager) -> None:
        metadata = await copied(rsm, builders.segment())
        for start, end in [(-1, None), (5, 4)]:
            with pytest.raises(InvalidRequestError) as raised:
                await joined(rsm.fetch_log_segment(metadata, start, end))
            assert raised.value.reason is ErrorReason.INVALID_OFFSET_RANGE

    async def test_a_read_may_be_given_up(self, rsm: RemoteStorageManager) -> None:
        segment = builders.segment(size_bytes=3_000_000)
        metadata = await copied(rsm, segment)
        pieces: Any = rsm.fetch_log_segment(metadata, 0)
        async with aclosing(pieces):
            async for piece in pieces:
                assert segment.log.startswith(bytes(piece))
                break
        assert await joined(rsm.fetch_log_segment(metadata, 0)) == segment.log

    async def test_every_offset_is_found_with_its_whole_batch(
        self, rsm: RemoteStorageManager
    ) -> None:
        segment = builders.segment(size_bytes=5_000)
        metadata = await copied(rsm, segment)
        for batch in iter_batches(segment.log):
            for offset in range(batch.base_offset, batch.last_offset + 1):
                found = await joined(rsm.fetch_records(metadata, offset, 1))
                assert found == bytes(batch.data)

    async def test_records_are_whole_batches_up_to_the_limit(
        self, rsm: RemoteStorageManager
    ) -> None:
        segment = builders.segment(size_bytes=50_000)
        metadata = await copied(rsm, segment)
        size = len(segment.batches[0])
        for max_bytes in (size, size + 1, 3 * size - 1, 3 * size, len(segment.log), 1 << 40):
            found = await joined(
                rsm.fetch_records(metadata, metadata.start_offset, max_bytes, min_one_batch=False)
            )
            assert segment.log.startswith(found)
            assert len(found) <= max_bytes
            assert sum(batch.size_bytes for batch in iter_batches(found)) == len(found)
            assert len(found) == len(segment.log) or len(found) + 2 * size > max_bytes

    async def test_a_first_batch_larger_than_the_limit_comes_alone_or_not_at_all(
        self, rsm: RemoteStorageManager
    ) -> None:
        """T27: at least one whole batch when asked for."""
        segment = builders.segment()
        metadata = await copied(rsm, segment)
        start = metadata.start_offset
        assert await joined(rsm.fetch_records(metadata, start, 10)) == segment.batches[0]
        nothing = rsm.fetch_records(metadata, start, 10, min_one_batch=False)
        assert await joined(nothing) == b""

    async def test_an_offset_in_a_hole_gives_the_next_batch(
        self, rsm: RemoteStorageManager
    ) -> None:
        """T14: offsets may have holes."""
        batches = [builders.record_batch(offset) for offset in (100, 150, 200)]
        segment = builders.segment(b"".join(batches), start_offset=90)
        metadata = await copied(rsm, segment)
        assert await joined(rsm.fetch_records(metadata, 90, 1)) == batches[0]
        assert await joined(rsm.fetch_records(metadata, 103, 1)) == batches[1]
        assert await joined(rsm.fetch_records(metadata, 199, 1 << 20)) == batches[2]

    async def test_no_batch_after_the_offset_gives_nothing(self, rsm: RemoteStorageManager) -> None:
        segment = builders.segment().with_metadata(end_offset=10_000)
        metadata = await copied(rsm, segment)
        assert await joined(rsm.fetch_records(metadata, 9_999, 1 << 20)) == b""

    async def test_offsets_outside_the_segment_are_refused(self, rsm: RemoteStorageManager) -> None:
        metadata = await copied(rsm, builders.segment())
        for offset in (metadata.start_offset - 1, metadata.end_offset + 1):
            with pytest.raises(OffsetOutOfRangeError):
                await joined(rsm.fetch_records(metadata, offset, 1 << 20))

    async def test_a_limit_that_is_not_positive_is_refused(self, rsm: RemoteStorageManager) -> None:
        metadata = await copied(rsm, builders.segment())
        with pytest.raises(InvalidRequestError):
            await joined(rsm.fetch_records(metadata, metadata.start_offset, 0))

    async def test_every_index_reads_back(self, rsm: RemoteStorageManager) -> None:
        """The remote log index as well, which is made of every segment that is copied (SR-33)."""
        aborted = AbortedTransaction(
            producer_id=1, first_offset=100, last_offset=110, last_stable_offset=111
        )
        txn_index = transaction_index.encode_entry(aborted)
        segment = builders.segment(size_bytes=50_000, transaction_index=txn_index)
        metadata = await copied(rsm, segment)
        expected = {
            IndexType.OFFSET: segment.data.offset_index,
            IndexType.TIMESTAMP: segment.data.time_index,
            IndexType.PRODUCER_SNAPSHOT: segment.data.producer_snapshot,
            IndexType.TRANSACTION: txn_index,
            IndexType.LEADER_EPOCH: segment.data.leader_epochs,
        }
        for index_type, index in expected.items():
            assert await rsm.fetch_index(metadata, index_type) == index
        table = RemoteLogIndex.parse(await rsm.fetch_index(metadata, IndexType.REMOTE_LOG_INDEX))
        assert table.data_size_bytes == len(segment.log)
        assert table.entries[0].first_offset == metadata.start_offset
        assert table.entries[-1].last_offset == metadata.end_offset

    @pytest.mark.parametrize(
        ("index_type", "part"),
        [
            (IndexType.TRANSACTION, "transaction_index"),
            (IndexType.PRODUCER_SNAPSHOT, "producer_snapshot"),
        ],
    )
    async def test_an_index_that_was_not_copied_is_not_found(
        self, rsm: RemoteStorageManager, index_type: IndexType, part: str
    ) -> None:
        segment = builders.segment().with_data(**{part: None})
        metadata = await copied(rsm, segment)
        with pytest.raises(RemoteResourceNotFoundError) as raised:
            await rsm.fetch_index(metadata, index_type)
        assert raised.value.reason is ErrorReason.INDEX_NOT_FOUND
        assert raised.value.metadata["indexType"] == index_type.name

    async def test_a_transaction_index_without_entries_is_not_found(
        self, rsm: RemoteStorageManager
    ) -> None:
        metadata = await copied(rsm, builders.segment(transaction_index=b""))
        with pytest.raises(RemoteResourceNotFoundError):
            await rsm.fetch_index(metadata, IndexType.TRANSACTION)

    async def test_an_index_without_entries_reads_back_empty(
        self, rsm: RemoteStorageManager
    ) -> None:
        segment = builders.segment(builders.record_batch(100))
        assert segment.data.offset_index == b""
        metadata = await copied(rsm, segment)
        assert await rsm.fetch_index(metadata, IndexType.OFFSET) == b""

    async def test_a_segment_that_was_never_copied_is_not_found(
        self, rsm: RemoteStorageManager
    ) -> None:
        metadata = builders.segment().metadata
        with pytest.raises(RemoteResourceNotFoundError) as raised:
            await joined(rsm.fetch_log_segment(metadata, 0))
        assert raised.value.reason is ErrorReason.SEGMENT_NOT_FOUND
        with pytest.raises(RemoteResourceNotFoundError):
            await joined(rsm.fetch_records(metadata, metadata.start_offset, 1))
        with pytest.raises(RemoteResourceNotFoundError) as raised:
            await rsm.fetch_index(metadata, IndexType.OFFSET)
        assert raised.value.reason is ErrorReason.SEGMENT_NOT_FOUND
        with pytest.raises(RemoteResourceNotFoundError):
            await rsm.describe_segment(metadata)
        with pytest.raises(RemoteResourceNotFoundError):
            [progress async for progress in rsm.verify_segment(metadata)]

    async def test_a_deleted_segment_is_gone_and_deleting_again_succeeds(
        self, rsm: RemoteStorageManager
    ) -> None:
        segment, other = builders.segment(), builders.segment()
        metadata, kept = await copied(rsm, segment), await copied(rsm, other)
        assert await joined(rsm.fetch_log_segment(metadata, 0)) == segment.log
        await rsm.delete_log_segment_data(metadata)
        await rsm.delete_log_segment_data(metadata)
        with pytest.raises(RemoteResourceNotFoundError):
            await joined(rsm.fetch_log_segment(metadata, 0))
        with pytest.raises(RemoteResourceNotFoundError):
            await rsm.fetch_index(metadata, IndexType.OFFSET)
        assert await joined(rsm.fetch_log_segment(kept, 0)) == other.log

    async def test_deleting_what_never_was_succeeds(self, rsm: RemoteStorageManager) -> None:
        await rsm.delete_log_segment_data(builders.segment().metadata)

    async def test_sizes_that_do_not_match_are_refused(self, rsm: RemoteStorageManager) -> None:
        segment = builders.segment()
        size = len(segment.log)
        by_metadata = segment.with_metadata(segment_size_bytes=size + 1)
        with pytest.raises(InvalidRequestError):
            await copied(rsm, by_metadata)
        for announced in (size - 1, size + 1):
            lying = segment.with_metadata(segment_size_bytes=announced).with_data(
                log_segment=builders.BytesLogSource(data=segment.log, announced_bytes=announced)
            )
            with pytest.raises(InvalidRequestError):
                await copied(rsm, lying)
        await self._assert_empty(rsm)

    async def test_a_log_that_ends_inside_a_batch_is_refused(
        self, rsm: RemoteStorageManager
    ) -> None:
        for cut in (1, 30, 100):
            log = builders.segment().log[:-cut]
            segment = builders.segment().with_metadata(segment_size_bytes=len(log))
            segment = segment.with_data(log_segment=builders.BytesLogSource(data=log))
            with pytest.raises(CorruptRecordError):
                await copied(rsm, segment)
        await self._assert_empty(rsm)

    async def test_a_damaged_batch_is_refused(self, rsm: RemoteStorageManager) -> None:
        segment = builders.segment()
        for position in (8, 16, 70, len(segment.log) - 1):
            log = bytearray(segment.log)
            log[position] ^= 0x55
            damaged = segment.with_data(log_segment=builders.BytesLogSource(data=bytes(log)))
            with pytest.raises(CorruptRecordError):
                await copied(rsm, damaged)
        await self._assert_empty(rsm)

    async def test_offsets_that_do_not_rise_are_refused(self, rsm: RemoteStorageManager) -> None:
        batch = builders.record_batch(100)
        segment = builders.segment(batch + batch)
        with pytest.raises(CorruptRecordError):
            await copied(rsm, segment)

    async def test_offsets_outside_the_segment_cannot_be_copied(
        self, rsm: RemoteStorageManager
    ) -> None:
        log = builders.record_batch(90) + builders.record_batch(100)
        segment = builders.segment(log)
        with pytest.raises(InvalidRequestError):
            await copied(rsm, segment)

    @pytest.mark.parametrize("part", ["offset_index", "time_index", "transaction_index"])
    async def test_a_malformed_index_is_refused(self, rsm: RemoteStorageManager, part: str) -> None:
        """T43: a corrupt index is not tiered."""
        segment = builders.segment().with_data(**{part: b"\x00\x01\x02"})
        with pytest.raises(CorruptIndexError):
            await copied(rsm, segment)
        await self._assert_empty(rsm)

    async def test_an_empty_log_can_be_copied(self, rsm: RemoteStorageManager) -> None:
        segment = builders.segment(b"")
        metadata = await copied(rsm, segment)
        assert await joined(rsm.fetch_records(metadata, metadata.start_offset, 1)) == b""
        with pytest.raises(PositionOutOfRangeError):
            await joined(rsm.fetch_log_segment(metadata, 0))
        await rsm.delete_log_segment_data(metadata)

    async def test_a_description_says_what_was_copied(self, rsm: RemoteStorageManager) -> None:
        segment = builders.segment()
        result = await rsm.copy_log_segment_data(segment.metadata, segment.data)
        stored = await rsm.describe_segment(segment.metadata)
        assert stored.metadata == segment.metadata
        assert stored.original_bytes == len(segment.log)
        assert stored.stored_bytes == result.stored_bytes
        assert stored.chunk_count == 1
        assert stored.sha256["log"] == result.log_sha256
        assert (
            stored.sha256["offset_index"] == hashlib.sha256(segment.data.offset_index).hexdigest()
        )
        assert len(set(stored.object_keys)) in (2, 3), "small indexes may lie in the manifest"

    async def test_a_sound_segment_verifies(self, rsm: RemoteStorageManager) -> None:
        metadata = await copied(rsm, builders.segment(size_bytes=100_000))
        steps = [progress async for progress in rsm.verify_segment(metadata)]
        assert [step.done for step in steps] == [False] * (len(steps) - 1) + [True]
        assert not any(step.findings for step in steps)
        described = await rsm.describe_segment(metadata)
        assert steps[-1].verified_bytes == steps[-1].total_bytes == described.stored_bytes

    async def test_a_listing_shows_what_is_stored_in_the_order_of_keys(
        self, rsm: RemoteStorageManager
    ) -> None:
        tip = builders.topic_id_partition("listed")
        logs = {
            start: builders.log_bytes(2_000, start_offset=start) for start in (500, 20, 1_000_000)
        }
        for start, log in logs.items():
            await copied(rsm, builders.segment(log, partition=tip, start_offset=start))
        await copied(rsm, builders.segment(partition=builders.topic_id_partition("other")))
        listed = [stored async for stored in rsm.list_stored_segments(f"listed-{tip.topic_id}/")]
        assert [stored.metadata.start_offset for stored in listed] == [20, 500, 1_000_000]
        assert [stored.original_bytes for stored in listed] == [
            len(logs[start]) for start in (20, 500, 1_000_000)
        ]
        assert len([stored async for stored in rsm.list_stored_segments()]) == 4

    async def test_what_a_copy_answered_can_be_had_from_the_store_alone(
        self, rsm: RemoteStorageManager
    ) -> None:
        """T59: metadata can be rebuilt."""
        segment = builders.segment()
        result = await rsm.copy_log_segment_data(segment.metadata, segment.data)
        (listed,) = [stored async for stored in rsm.list_stored_segments()]
        assert listed.custom_metadata == result.custom_metadata
        assert listed.metadata == segment.metadata
        assert await rsm.describe_segment(segment.metadata) == listed

    async def test_closing_twice_is_harmless(self, rsm: RemoteStorageManager) -> None:
        await rsm.close()
        await rsm.close()

    async def _assert_empty(self, rsm: RemoteStorageManager) -> None:
        assert [stored async for stored in rsm.list_stored_segments()] == []
