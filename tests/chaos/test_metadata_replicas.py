"""Replicas of the metadata service are killed in the middle of writes: clients go on with the others, nothing is lost or doubled."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import builders
from aquifer_client import GrpcRemoteLogMetadataManager
from aquifer_core.ids import TopicIdPartition
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState
from contract.remote_log_metadata.steps import brought_to, listed
from fixtures.metadata_process import Service, free_addresses, running
from fixtures.polling import eventually

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
WAIT_S = 120
SEGMENTS = 20
WRITERS = 4


@dataclass(slots=True)
class Work:
    """What several writers have been told is done, each for a partition of its own."""

    acknowledged: dict[TopicIdPartition, list[RemoteLogSegmentMetadata]] = field(
        default_factory=dict
    )

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    async def write(self, rlmm: GrpcRemoteLogMetadataManager, tip: TopicIdPartition) -> None:
        done = self.acknowledged.setdefault(tip, [])
        for number in range(SEGMENTS):
            segment = builders.remote_segment(tip, number * 10, number * 10 + 9)
            done.append(await brought_to(rlmm, segment))

    async def reached(self, count: int) -> None:
        await eventually(lambda: self.count >= count, timeout_s=WAIT_S)


async def killed(service: Service) -> None:
    service.process.kill()
    await service.process.wait()


async def test_writes_go_on_through_the_death_of_every_replica_and_happen_once(
    metadata_dsn: str,
) -> None:
    """T37: an answer that was lost is repeated, and the repeat finds the write done or does it."""
    settings = {"LOG__LEVEL": "error"}
    addresses = free_addresses(2)
    work = Work()
    total = WRITERS * SEGMENTS
    rlmm = GrpcRemoteLogMetadataManager()
    async with AsyncExitStack() as stack:
        services = [
            await stack.enter_async_context(running(metadata_dsn, GRPC__LISTEN=address, **settings))
            for address in addresses
        ]
        # Deadlines and attempts for a machine that is busy with other things.
        configs = {"endpoints": ",".join(addresses), "deadline.ms": "100000", "max.attempts": "50"}
        await rlmm.configure(configs)
        stack.push_async_callback(rlmm.close)
        async with asyncio.TaskGroup() as writers:
            for _ in range(WRITERS):
                writers.create_task(work.write(rlmm, builders.topic_id_partition()))
            await work.reached(total // 5)
            await killed(services[0])
            await work.reached(2 * total // 5)
            again = running(metadata_dsn, GRPC__LISTEN=addresses[0], **settings)
            await stack.enter_async_context(again)
            await killed(services[1])
        assert work.count == total
        for tip, done in work.acknowledged.items():
            assert await listed(rlmm, tip) == done
            for segment in done:
                history = await rlmm.segment_history(segment.segment_id)
                assert [event.to_state for event in history] == [STARTED, FINISHED]
            assert await rlmm.highest_offset_for_epoch(tip, 0) == done[-1].end_offset
