"""Writes docs/metadata-plans.md: how PostgreSQL executes the hot statements of the metadata service.

python -m bench.metadata_plans [SEGMENTS]      over the table of so many segments that the bench keeps; ten million by default
"""

import asyncio
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import builders
import psycopg
from aquifer_core.ids import TopicIdPartition
from aquifer_core.segment import RemoteLogSegmentMetadataUpdate
from aquifer_core.state import RemoteLogSegmentState
from aquifer_metadata.adapters.postgres import remote_log_plain_writes as plain
from aquifer_metadata.adapters.postgres import remote_log_reads as reads
from aquifer_metadata.adapters.postgres import remote_log_references as references
from aquifer_metadata.adapters.postgres import remote_log_write_statements as writes
from aquifer_metadata.adapters.postgres.remote_log_deletions import FIRST_PAGE, UNFINISHED
from aquifer_metadata.adapters.postgres.remote_log_lookups import LOOKUP, Question, lookup_values
from aquifer_metadata.adapters.postgres.remote_log_pruning import PRUNE
from aquifer_metadata.adapters.postgres.remote_log_rows import partition_key, segment_values
from aquifer_metadata.adapters.postgres.remote_log_runs import RUNS, RunQuestion, run_values
from aquifer_standalone.ports import hold_port
from aquifer_standalone.postgres import EmbeddedPostgres
from aquifer_standalone.supervisor import Supervisor
from bench.metadata import LARGE, PER_PARTITION
from bench.metadata_facts import CACHE, OFFSETS_PER_SEGMENT, SEGMENT_BYTES, Facts, kept_facts
from bench.metadata_retention_plans import retention_statements
from sqlalchemy import TextClause
from sqlalchemy.dialects import postgresql

PAGE = Path("docs/metadata-plans.md")
_EXPLAIN = "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) "
_EPOCH = 0
_RUN_BYTES = 2 * SEGMENT_BYTES
"""As many as three segments hold from somewhere in the first one on."""
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DIALECT = postgresql.psycopg.dialect()  # type: ignore[no-untyped-call]

Statement = tuple[str, str, Mapping[str, Any]]
"""What it is for, its text in the driver's form, its parameters."""


async def page(segments: int) -> str:
    postgres = EmbeddedPostgres(CACHE, hold_port())
    async with Supervisor([postgres.spec()], data_dir=CACHE):
        facts = await kept_facts(postgres.dsn, segments, max(1, segments // PER_PARTITION))
        return _page(facts)


def _page(facts: Facts) -> str:
    parts = [
        "# Plans of the hot statements of the metadata service",
        "",
        f"`PYTHONPATH=tests python -m bench.metadata_plans` wrote this over {facts.segments:,} segments in {facts.partitions:,}"
        f" partitions of {facts.per_partition:,}: each statement was run once, and changes were rolled back. What counts is that"
        " look-ups and writes touch a fixed number of rows by index, whatever the size of the tables; retention reads the segments"
        " of its one partition, by index and without a sort of them.",
        "",
    ]
    with closing(psycopg.connect(facts.dsn)) as connection:
        for title, text, values in _statements(facts):
            plan = [row[0] for row in connection.execute(_EXPLAIN + text, values)]
            connection.rollback()
            parts += [f"## {title}", "", "```", *map(_short, _telling(plan)), "```", ""]
    return "\n".join(parts)


def _statements(facts: Facts) -> Iterator[Statement]:
    tip = facts.partition(facts.partitions // 2)
    end = facts.per_partition * OFFSETS_PER_SEGMENT
    yield from _questions(tip, end)
    yield from _changes(tip, end)
    yield from retention_statements(facts)
    unfinished = FIRST_PAGE | {"page_size": 500}
    yield "Deletions of partitions that have not finished", _driver_text(UNFINISHED), unfinished
    pruned = {"after": facts.segments, "before_ms": int(time.time() * 1000), "batch_size": 1000}
    yield "A batch of the pruning of the history", _driver_text(PRUNE), pruned


def _questions(tip: TopicIdPartition, end: int) -> Iterator[Statement]:
    asked = [Question(tip, _EPOCH, end * part // 8 + 1) for part in range(8)]
    yield "A look-up", LOOKUP.text, lookup_values(asked[4:5])
    yield "Eight look-ups that share a statement", LOOKUP.text, lookup_values(asked)
    runs = [RunQuestion(tip, _EPOCH, end * part // 8 + 1, _RUN_BYTES) for part in range(8)]
    yield "A run of segments", RUNS.text, run_values(runs[4:5])
    yield "Eight runs that share a statement", RUNS.text, run_values(runs)
    named = partition_key(tip).values
    in_epoch = named | {"leader_epoch": _EPOCH}
    yield "The highest offset of a leader epoch", _driver_text(reads.HIGHEST), in_epoch
    listing = named | {
        "after_offset": end // 2,
        "after_id": partition_key(tip).topic_id,
        "page_size": 500,
    }
    yield "A page of a listing", _driver_text(reads.PAGE), listing


def _changes(tip: TopicIdPartition, end: int) -> Iterator[Statement]:
    segment = builders.remote_segment(tip, end, end + OFFSETS_PER_SEGMENT - 1)
    values = segment_values(segment) | {
        "topic": tip.topic,
        "leader_epoch": _EPOCH,
        "writer_leader_epoch": _EPOCH,
        "version": 1,
        "from_state": 0,
        "now_ms": 0,
        "trace_id": "",
        "reason": "",
    }
    origin = plain.origin_values(_EPOCH, "", 0)
    yield "Adding a segment", plain.ADD.text, plain.add_values(segment) | origin
    finish = RemoteLogSegmentMetadataUpdate(
        segment_id=segment.segment_id,
        event_timestamp_ms=0,
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        broker_id=1,
    )
    yield "Finishing a segment", plain.FINISH.text, plain.finish_values(finish) | origin
    yield "Taking the partition's row", _driver_text(writes.TAKE_PARTITION), values
    yield "Adding a segment, with its row taken", _driver_text(writes.ADD), values
    yield "Moving a segment to another state", _driver_text(writes.UPDATE), values
    yield (
        "Raising the highest offset, and what the new segment covers",
        _driver_text(references.RAISE_HIGHEST_AND_DISPLACE),
        values,
    )
    yield "Making a segment answer look-ups", _driver_text(references.REFERENCE), values


def _driver_text(statement: TextClause) -> str:
    return str(statement.compile(dialect=_DIALECT))


def _telling(plan: Sequence[str]) -> Iterator[str]:
    """Without what only hands values on: where a statement has them at hand, and that they fit into memory."""
    for line, following in pairwise([*plan, ""]):
        handing_on = "InitPlan" in line and "CTE Scan on q" in following
        if not handing_on and "CTE Scan on q" not in line and "Storage: Memory" not in line:
            yield line


def _short(line: str) -> str:
    """Ids and long lists of parameters say nothing."""
    line = _ID.sub("...", line)
    return line if len(line) <= 160 else line[:157] + "..."


if __name__ == "__main__":
    PAGE.write_text(asyncio.run(page(int(sys.argv[1]) if len(sys.argv) > 1 else LARGE)))
