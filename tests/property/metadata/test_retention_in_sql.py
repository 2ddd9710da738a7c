"""Retention decided by a statement is retention as the pure function decides it over the same segments."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import builders
import psycopg
import pytest
from aquifer_core.ids import TopicIdPartition
from aquifer_core.leader_epoch import build_filtered_leader_epoch_map
from aquifer_core.ports import RetentionPolicy
from aquifer_core.retention import plan_retention
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState
from aquifer_metadata.adapters.postgres.database import Database, DatabaseOptions
from aquifer_metadata.adapters.postgres.remote_log_retention import (
    RemoteLogRetention,
    RetentionSizes,
)
from aquifer_metadata.adapters.postgres.remote_log_rows import segment_values
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

NOW_MS = 1_000
AGE_MARKS_MS = [200, 400, 600, 800, NOW_MS]
LAST_OFFSET = 40
LISTED = [state for state in RemoteLogSegmentState if state.name != "DELETE_SEGMENT_FINISHED"]
SIZES = [
    RetentionSizes(candidates=6),
    RetentionSizes(whole=1, page=1, first_step=1),
    RetentionSizes(whole=4, page=4, first_step=2, candidates=2),
    RetentionSizes(whole=1, page=100, first_step=1),
]
"""Cases in one page, in several, in pages of a segment; all that is found, or the first."""

INSERT = """
INSERT INTO remote_log_segment (segment_id, topic_id, partition, start_offset, end_offset, broker_id, max_timestamp_ms,
  event_timestamp_ms, segment_size_bytes, state, leader_epochs, leader_epoch_offsets, txn_index_empty, version,
  created_at_ms, updated_at_ms)
VALUES (%(segment_id)s, %(topic_id)s, %(partition)s, %(start_offset)s, %(end_offset)s, 1, %(max_timestamp_ms)s,
  %(event_timestamp_ms)s, %(segment_size_bytes)s, %(state)s, %(epochs)s, %(epoch_starts)s, true, 1, 0, 0)
"""


@st.composite
def lineages(draw: st.DrawFn) -> dict[int, int]:
    """Epochs and their first offsets, ascending; some epochs without records, some missing."""
    epochs = draw(st.lists(st.integers(0, 6), unique=True, max_size=5))
    starts = draw(st.lists(st.integers(0, LAST_OFFSET), min_size=5, max_size=5))
    return dict(zip(sorted(epochs), sorted(starts), strict=False))


def as_written(lineage: Mapping[int, int], start: int, end: int) -> dict[int, int]:
    """The epochs of a segment that the leader of a lineage wrote; none when it begins before the lineage."""
    recorded = build_filtered_leader_epoch_map(lineage)
    inside = {epoch: at for epoch, at in recorded.items() if start < at <= end}
    before = [epoch for epoch, at in recorded.items() if at <= start]
    return {max(before): start} | inside if before else {}


@st.composite
def segments(
    draw: st.DrawFn, partition: TopicIdPartition, lineage: Mapping[int, int]
) -> RemoteLogSegmentMetadata:
    """Mostly of the lineage and finished, sometimes neither."""
    start = draw(st.integers(0, LAST_OFFSET))
    end = draw(st.integers(start, LAST_OFFSET))
    epochs = as_written(lineage, start, end) if draw(st.integers(0, 3)) else {}
    if not epochs:
        known = draw(st.lists(st.integers(0, 7), min_size=3, max_size=3, unique=True))
        starts = draw(st.sets(st.integers(start, end), max_size=2)) | {start}
        epochs = dict(zip(sorted(known), sorted(starts), strict=False))
    finished = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    made = builders.remote_segment(
        partition,
        start,
        end,
        epochs,
        max_timestamp_ms=draw(st.sampled_from([-1, 0, *AGE_MARKS_MS])),
        segment_size_bytes=draw(st.integers(1, 1 << 40)),
    )
    return replace(
        made,
        event_timestamp_ms=draw(st.sampled_from(AGE_MARKS_MS)),
        state=draw(st.sampled_from([finished, finished, *LISTED])),
    )


@st.composite
def cases(draw: st.DrawFn) -> Any:
    partition = builders.topic_id_partition()
    lineage = draw(lineages())
    known = draw(st.lists(segments(partition, lineage), max_size=12))
    ids = [segment.segment_id.id for segment in known]
    in_progress = draw(st.lists(st.sampled_from(ids), max_size=1)) if ids else []
    total_bytes = sum(segment.segment_size_bytes for segment in known)
    policy = RetentionPolicy(
        retention_ms=draw(st.sampled_from([-1, -1, 0, 2 * NOW_MS, *AGE_MARKS_MS])),
        retention_bytes=draw(st.integers(-1, total_bytes) | st.just(-1)),
        log_start_offset=draw(st.integers(0, LAST_OFFSET)),
        log_end_offset=draw(st.integers(0, LAST_OFFSET + 2) | st.just(LAST_OFFSET + 2)),
        local_only_bytes=draw(st.sampled_from([0, 512])),
        in_progress=frozenset(in_progress),
        copy_abandoned_after_ms=draw(st.sampled_from(AGE_MARKS_MS)),
    )
    return partition, known, lineage, policy


@pytest.fixture
def connection(metadata_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with closing(psycopg.connect(metadata_dsn, autocommit=True)) as connection:
        yield connection


def test_the_statement_and_the_function_choose_the_same(
    metadata_dsn: str, connection: psycopg.Connection[Any]
) -> None:
    """K-3.4, SR-10, SR-11, SR-17: reasons, order, log start and bytes."""
    with asyncio.Runner() as runner:
        database = runner.run(_connected(metadata_dsn))
        walks = [(sizes, RemoteLogRetention(database, sizes)) for sizes in SIZES]

        @settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
        @given(case=cases())
        def agree(case: Any) -> None:
            partition, known, lineage, policy = case
            with connection.cursor() as cursor:
                cursor.executemany(INSERT, [segment_values(segment) for segment in known])
            expected = plan_retention(known, lineage, policy, NOW_MS)
            for sizes, retention in walks:
                found = runner.run(retention.plan(partition, lineage, policy, NOW_MS))
                first = expected.candidates[: sizes.candidates]
                assert found == replace(expected, candidates=first)

        try:
            agree()
        finally:
            runner.run(database.engine.dispose())


async def _connected(dsn: str) -> Database:
    return Database(DatabaseOptions(dsn=dsn, pool_size=1, statement_timeout_ms=120_000))
