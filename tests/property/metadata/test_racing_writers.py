"""Leaders that race for the same partitions: their writes follow one another, none is lost, and nobody deadlocks."""

import asyncio
from dataclasses import dataclass, field

import builders
from aquifer_core.clock import SystemClock
from aquifer_core.errors import StaleLeaderEpochError
from aquifer_core.ids import RemoteLogSegmentId, TopicIdPartition
from aquifer_core.segment import RemoteLogSegmentMetadataUpdate
from aquifer_core.state import RemoteLogSegmentState
from aquifer_metadata.adapters.postgres.change_signal import ChangeSignal
from aquifer_metadata.adapters.postgres.database import Database, DatabaseOptions
from aquifer_metadata.adapters.postgres.remote_log_metadata_manager import (
    PostgresRemoteLogMetadataManager,
)
from aquifer_metadata.adapters.postgres.remote_log_rows import partition_key
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Row, text

WRITERS = 3
PARTITIONS = 2
STEPS = st.lists(
    st.tuples(st.sampled_from(["copy", "copy", "lead", "raise"]), st.integers(0, PARTITIONS - 1)),
    min_size=1,
    max_size=4,
)

_EVENTS = text("""
SELECT version, leader_epoch, segment_id, to_state FROM remote_log_segment_event
WHERE topic_id = :topic_id AND partition = :partition ORDER BY version
""")


@dataclass(slots=True)
class Writer:
    """A leader of all partitions, as it believes."""

    rlmm: PostgresRemoteLogMetadataManager
    leader_epoch: int
    finished: dict[TopicIdPartition, set[RemoteLogSegmentId]] = field(default_factory=dict)

    async def run(self, steps: list[tuple[str, int]], tips: list[TopicIdPartition]) -> None:
        """Does one thing after another until it learns that it was replaced."""
        try:
            for number, (kind, partition) in enumerate(steps):
                await self._step(kind, tips, partition, number)
        except StaleLeaderEpochError:
            return

    async def _step(
        self, kind: str, tips: list[TopicIdPartition], partition: int, number: int
    ) -> None:
        tip, epoch = tips[partition], self.leader_epoch
        if kind == "lead":
            # In an order of its own: whoever takes several rows must take them in one order.
            turned = tips[partition:] + tips[:partition]
            await self.rlmm.on_partition_leadership_changes(dict.fromkeys(turned, epoch), [])
        elif kind == "raise":
            await self.rlmm.update_earliest_log_offset(tip, number + 1, epoch)
        else:
            segment = builders.remote_segment(
                tip, number * 10, number * 10 + 9, {epoch: number * 10}
            )
            await self.rlmm.add_remote_log_segment_metadata(segment, leader_epoch=epoch)
            done = RemoteLogSegmentMetadataUpdate(
                segment_id=segment.segment_id,
                event_timestamp_ms=segment.event_timestamp_ms,
                state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
                broker_id=1,
            )
            await self.rlmm.update_remote_log_segment_metadata(done, leader_epoch=epoch)
            self.finished.setdefault(tip, set()).add(segment.segment_id)


def test_racing_writers_serialize(metadata_dsn: str) -> None:
    """Any refusal but that of a replaced leader fails the test: a conflict that came through, a deadlock, a timeout."""
    with asyncio.Runner() as runner:
        database = runner.run(_connected(metadata_dsn))
        rlmm = PostgresRemoteLogMetadataManager(
            database, ChangeSignal(database), clock=SystemClock(), trace_id=lambda: ""
        )

        @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
        @given(
            plans=st.lists(STEPS, min_size=WRITERS, max_size=WRITERS),
            epochs=st.lists(st.integers(0, 2), min_size=WRITERS, max_size=WRITERS),
        )
        def race(plans: list[list[tuple[str, int]]], epochs: list[int]) -> None:
            runner.run(_race(database, rlmm, plans, epochs))

        try:
            race()
        finally:
            runner.run(database.engine.dispose())


async def _race(
    database: Database,
    rlmm: PostgresRemoteLogMetadataManager,
    plans: list[list[tuple[str, int]]],
    epochs: list[int],
) -> None:
    first = builders.topic_id_partition()
    tips = [TopicIdPartition(first.topic_id, first.topic, each) for each in range(PARTITIONS)]
    writers = [Writer(rlmm, epoch) for epoch in epochs]
    async with asyncio.TaskGroup() as group:
        for writer, steps in zip(writers, plans, strict=True):
            group.create_task(writer.run(steps, tips))
    for tip in tips:
        events = await _events(database, tip)
        versions = [event.version for event in events]
        assert len(set(versions)) == len(versions), "each change has a version of its own"
        written_in = [event.leader_epoch for event in events]
        assert written_in == sorted(written_in), "no replaced leader wrote after its successor"
        listed = {
            segment.segment_id
            async for segment in rlmm.list_remote_log_segments(tip)
            if segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        }
        assert listed == set().union(*(writer.finished.get(tip, set()) for writer in writers))


async def _events(database: Database, tip: TopicIdPartition) -> list[Row]:  # type: ignore[type-arg]
    rows = await database.read(
        lambda connection: connection.execute(_EVENTS, partition_key(tip).values)
    )
    return list(rows)


async def _connected(dsn: str) -> Database:
    return Database(
        DatabaseOptions(
            dsn=dsn,
            pool_size=WRITERS,
            attempts=1,
            lock_timeout_ms=120_000,
            statement_timeout_ms=120_000,
        )
    )
