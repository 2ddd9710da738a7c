"""Hands out producer ids from blocks reserved in the cluster metadata."""

import asyncio
from typing import Final

from aquifer_broker.cluster.ports import ClusterMetadata

__all__ = ["ProducerIdAllocator"]

_BLOCK_SIZE: Final = 1000


class ProducerIdAllocator:
    """Ids that no other producer of the cluster has."""

    def __init__(self, metadata: ClusterMetadata, node_id: int) -> None:
        self._metadata = metadata
        self._node_id = node_id
        self._next_id = 0
        self._end_id = 0
        self._lock = asyncio.Lock()

    async def allocate(self) -> int:
        """A new id.

        Raises:
            UnavailableError: the block is used up and no other can be had.
        """
        async with self._lock:
            if self._next_id >= self._end_id:
                block = await self._metadata.allocate_producer_ids(self._node_id, _BLOCK_SIZE)
                self._next_id, self._end_id = block.first_id, block.first_id + block.count
            self._next_id += 1
            return self._next_id - 1
