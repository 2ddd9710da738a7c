"""What every RemoteLogMetadataManager does (SR-14), whatever side of the wire it stands on."""

import asyncio

import builders
from contract.remote_log_metadata.changing import FencingContract, WritingContract
from contract.remote_log_metadata.expiring import PartitionDeletionContract, RetentionContract
from contract.remote_log_metadata.finding import ListingContract, LookupContract
from contract.remote_log_metadata.pausing import PauseContract
from contract.remote_log_metadata.running import RunContract
from contract.remote_log_metadata.steps import Manager, brought_to, changes, listed, tip
from contract.remote_log_metadata.summarizing import SummaryContract
from contract.remote_log_metadata.watching import WatchContract


class RemoteLogMetadataManagerContract(
    LookupContract,
    ListingContract,
    WritingContract,
    FencingContract,
    PartitionDeletionContract,
    RetentionContract,
    SummaryContract,
    PauseContract,
    RunContract,
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
