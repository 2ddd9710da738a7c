"""Looks for changes that nobody notified of, for all watches of a process together."""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Final

from aquifer_core.ids import TopicIdPartition
from aquifer_rpc.supervised import SupervisedLoop
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres.change_signal import ChangeSignal, partition_signal
from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.remote_log_rows import partition_key

_BATCH: Final = 1_000
"""Partitions asked about by one statement."""

MOVED: Final = text("""
SELECT q.number, p.version
FROM unnest(CAST(:topic_ids AS uuid[]), CAST(:partitions AS int[]), CAST(:versions AS bigint[])) WITH ORDINALITY
  AS q (topic_id, partition, version, number)
JOIN remote_log_partition p ON p.topic_id = q.topic_id AND p.partition = q.partition
WHERE p.version > q.version
""")


@dataclass(slots=True)
class _Watched:
    """A partition, how many watches it has, and the version up to which they were woken."""

    topic_id: uuid.UUID
    partition: int
    signal: str
    version: int
    watches: int = 0


class WatchPoll:
    """One statement in an interval for every thousand watched partitions; it wakes the watches of those that moved.

    Begins with the first watch and ends with the signal; asks nothing while nobody watches.
    """

    def __init__(self, database: Database, signal: ChangeSignal, *, poll_s: float) -> None:
        self._database = database
        self._signal = signal
        self._watched: dict[str, _Watched] = {}
        self._loop = SupervisedLoop(
            "poll of watched partitions", self._look, interval_s=poll_s, backoff_max_s=poll_s
        )

    @contextmanager
    def watching(self, tip: TopicIdPartition, version: int) -> Iterator[None]:
        """Has a watch woken when its partition moves beyond a version; the watch has subscribed to the signal already."""
        key = partition_signal(tip)
        watched = self._watched.get(key)
        if watched is None:
            row = partition_key(tip)
            watched = _Watched(row.topic_id, row.partition, key, version)
            self._watched[key] = watched
        watched.watches += 1
        try:
            yield
        finally:
            watched.watches -= 1
            if not watched.watches:
                del self._watched[key]

    async def run(self) -> None:
        """Makes sure that the poll goes on; idempotent."""
        await self._signal.poll_with(self._loop)

    async def _look(self) -> None:
        watched = iter(list(self._watched.values()))
        while batch := list(islice(watched, _BATCH)):
            for each, version in await self._moved(batch):
                # What an event told already is told again at most once.
                each.version = version
                self._signal.wake(each.signal)

    async def _moved(self, batch: Sequence[_Watched]) -> list[tuple[_Watched, int]]:
        values = {
            "topic_ids": [each.topic_id for each in batch],
            "partitions": [each.partition for each in batch],
            "versions": [each.version for each in batch],
        }

        async def work(connection: AsyncConnection) -> list[tuple[_Watched, int]]:
            rows = await connection.execute(MOVED, values)
            return [(batch[row.number - 1], row.version) for row in rows]

        return await self._database.read(work)
