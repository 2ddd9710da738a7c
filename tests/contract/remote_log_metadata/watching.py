"""The contract of the RemoteLogMetadataManager: following the changes of a partition."""

import asyncio
from contextlib import aclosing

import builders
from contract.remote_log_metadata.steps import (
    DELETED,
    DELETING,
    DELETION_STARTED,
    FINISHED,
    FORGOTTEN,
    MARKED,
    WAIT_S,
    Manager,
    brought_to,
    changes,
    move,
    move_deletion,
    tip,
    update,
)


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
