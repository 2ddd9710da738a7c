"""Where the data of a topic of Apache Kafka lies: by the broker's files, by metadata and by the bucket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

from aquifer_client import GrpcRemoteLogMetadataManager
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_core.state import RemoteLogSegmentState

from aquifer_standalone.demo.tiers import PartitionTiers, TierWatch, log_bytes
from aquifer_standalone.stack import Stack

_BROKER = 1


class KafkaTierWatch(TierWatch):
    """Reads a topic whose partitions all lie on broker 1 of a cluster."""

    def __init__(
        self,
        suite: Stack,
        topic: str,
        topic_id: KafkaUuid,
        ends: dict[int, int],
        metadata: GrpcRemoteLogMetadataManager,
    ) -> None:
        super().__init__(suite, topic, len(ends))
        assert suite.kafka is not None
        self._topic_id = topic_id
        self._ends = ends
        self._metadata = metadata
        [self._folder] = suite.kafka.log_dirs(_BROKER)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, suite: Stack, topic: str, topic_id: KafkaUuid, ends: dict[int, int]
    ) -> AsyncIterator[Self]:
        """A watch of a topic with these log end offsets."""
        metadata = GrpcRemoteLogMetadataManager()
        await metadata.configure({"endpoints": suite.address("metadata")})
        try:
            yield cls(suite, topic, topic_id, ends, metadata)
        finally:
            await metadata.close()

    async def read(self) -> list[PartitionTiers]:
        """The partitions, by number."""
        stored = await asyncio.to_thread(self.stored)
        return [await self._read_one(number, stored) for number in sorted(self._ends)]

    async def _read_one(self, partition: int, stored: dict[int, tuple[int, int]]) -> PartitionTiers:
        tip = TopicIdPartition(self._topic_id, self._topic, partition)
        finished = [
            segment
            async for segment in self._metadata.list_remote_log_segments(tip)
            if segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        ]
        folder = self._folder / f"{self._topic}-{partition}"
        highest = max((segment.end_offset for segment in finished), default=-1)
        size, objects = stored.get(partition, (0, 0))
        return PartitionTiers(
            partition=partition,
            leader=_BROKER,
            log_start_offset=min((segment.start_offset for segment in finished), default=0),
            local_log_start_offset=min(_base_offsets(folder), default=0),
            highest_remote_offset=highest,
            log_end_offset=self._ends[partition],
            copy_lag_bytes=_bytes_to_copy(folder, highest),
            local_bytes=log_bytes(folder),
            remote_bytes=size,
            remote_objects=objects,
        )


def _base_offsets(folder: Path) -> list[int]:
    return sorted(int(file.stem) for file in folder.glob("*.log"))


def _bytes_to_copy(folder: Path, highest_remote: int) -> int:
    """Bytes of rolled segments that are not remote yet."""
    total = 0
    for base in _base_offsets(folder)[:-1]:
        if base > highest_remote:
            try:
                total += (folder / f"{base:020}.log").stat().st_size
            except FileNotFoundError:  # dropped by local retention meanwhile
                continue
    return total
