"""What brokers write to their disks is Apache Kafka's format, file by file."""

import asyncio
from pathlib import Path

import pytest
from aquifer_core.formats.leader_epoch_checkpoint import parse_leader_epochs
from aquifer_core.formats.meta_properties import parse_meta_properties
from aquifer_core.formats.offset_checkpoint import parse_offsets
from aquifer_core.formats.offset_index import OffsetIndex
from aquifer_core.formats.partition_metadata import parse_partition_metadata
from aquifer_core.formats.producer_snapshot import decode_snapshot
from aquifer_core.formats.record_batch import iter_batches, validate_crc
from aquifer_core.formats.segment_files import (
    LEADER_EPOCH_CHECKPOINT_NAME,
    LOG_START_OFFSET_CHECKPOINT_NAME,
    META_PROPERTIES_NAME,
    PARTITION_METADATA_NAME,
    RECOVERY_POINT_CHECKPOINT_NAME,
    parse_base_offset,
)
from aquifer_core.formats.time_index import TimeIndex
from aquifer_core.segment import IndexType
from fixtures.kafka_traffic import produce, records_of
from fixtures.suite import E2E_GROUP, RunningSuite
from fixtures.tiered_topic import MakeTopic

pytestmark = pytest.mark.xdist_group(E2E_GROUP)


def check_log(data: bytes, base_offset: int) -> tuple[int, dict[int, int], int]:
    """Check every batch; (next offset, position -> last offset, largest timestamp)."""
    expected = base_offset
    ends: dict[int, int] = {}
    newest_ms = -1
    position = 0
    for batch in iter_batches(data):
        validate_crc(batch)
        assert batch.magic == 2
        assert batch.base_offset == expected
        ends[position] = batch.last_offset
        newest_ms = max(newest_ms, batch.max_timestamp_ms)
        expected, position = batch.next_offset, position + batch.size_bytes
    assert position == len(data), "bytes are left after the last batch"
    return expected, ends, newest_ms


def check_indexes(offset_data: bytes, time_data: bytes, base_offset: int, log: bytes) -> None:
    """Check that both indexes fit the log."""
    next_offset, ends, newest_ms = check_log(log, base_offset)
    offsets = OffsetIndex(offset_data, base_offset)
    offsets.verify_entries()
    for entry in offsets.entries():
        assert ends[entry.position] == entry.offset
    times = TimeIndex(time_data, base_offset)
    times.verify_entries()
    for time in times.entries():
        assert base_offset <= time.offset < next_offset
        assert time.timestamp_ms <= newest_ms
    if len(times):
        assert times.last_entry.timestamp_ms == newest_ms


def check_segment(folder: Path, base_offset: int) -> int:
    """Check a rolled segment; the offset after it."""
    stem = folder / f"{base_offset:020d}"
    log = stem.with_suffix(".log").read_bytes()
    check_indexes(
        stem.with_suffix(".index").read_bytes(),
        stem.with_suffix(".timeindex").read_bytes(),
        base_offset,
        log,
    )
    return check_log(log, base_offset)[0]


@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_files_of_a_log_are_as_kafka_writes_them(
    suite: RunningSuite, topics: MakeTopic, codec: str
) -> None:
    """Segments, both indexes, producer snapshots, checkpoints, ids (K-6.1 to K-6.5, SR-37)."""
    topic = await topics(remote_storage_enable="false", local_retention_bytes="-2")
    acked = await asyncio.to_thread(
        produce,
        suite.bootstrap,
        topic.name,
        records_of(500),
        enable_idempotence=True,
        compression_type=codec,
    )
    folder = topic.folder()
    bases = topic.local_bases()
    assert len(bases) > 3
    ends = [check_segment(folder, base) for base in bases[:-1]]
    assert ends == bases[1:]
    active = (folder / f"{bases[-1]:020d}.log").read_bytes()
    assert check_log(active, bases[-1])[0] == len(acked)
    assert parse_partition_metadata((folder / PARTITION_METADATA_NAME).read_bytes()) == (
        topic.topic_id
    )
    epochs = parse_leader_epochs((folder / LEADER_EPOCH_CHECKPOINT_NAME).read_bytes())
    assert [(each.epoch, each.start_offset) for each in epochs] == [(0, 0)]
    snapshots = sorted(folder.glob("*.snapshot"))
    assert snapshots
    for file in snapshots:
        (state,) = decode_snapshot(file.read_bytes())
        until = parse_base_offset(file.name)
        assert until in bases
        assert state.last_offset == until - 1


async def test_checkpoints_of_a_stopped_broker_are_as_kafka_writes_them(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """Recovery points, log start offsets of tiered logs, meta.properties (K-6.4)."""
    topic = await topics()
    await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(300))
    offsets = await topic.until_cold()
    await suite.restart(f"broker-{topic.leaders[0]}")
    log_dir = topic.folder().parent
    points = parse_offsets((log_dir / RECOVERY_POINT_CHECKPOINT_NAME).read_bytes())
    assert points[topic.name, 0] == offsets.end
    starts = parse_offsets((log_dir / LOG_START_OFFSET_CHECKPOINT_NAME).read_bytes())
    assert starts[topic.name, 0] == 0
    meta = parse_meta_properties((log_dir / META_PROPERTIES_NAME).read_bytes())
    assert meta.node_id == topic.leaders[0]


async def test_indexes_in_the_store_are_the_brokers_and_fit_the_stored_log(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """As RemoteStorageManager gives them back (SR-13, SR-16)."""
    topic = await topics(index_interval_bytes="1")
    await asyncio.to_thread(
        produce, suite.bootstrap, topic.name, records_of(300), enable_idempotence=True
    )
    await topic.until_cold()
    async with suite.storage_role() as storage:
        for segment in await topic.segments():
            pieces = [bytes(each) async for each in storage.fetch_log_segment(segment, 0)]
            log = b"".join(pieces)
            offset_index = await storage.fetch_index(segment, IndexType.OFFSET)
            time_index = await storage.fetch_index(segment, IndexType.TIMESTAMP)
            snapshot = await storage.fetch_index(segment, IndexType.PRODUCER_SNAPSHOT)
            epochs = await storage.fetch_index(segment, IndexType.LEADER_EPOCH)
            assert len(log) == segment.segment_size_bytes
            assert check_log(log, segment.start_offset)[0] == segment.end_offset + 1
            check_indexes(offset_index, time_index, segment.start_offset, log)
            assert len(OffsetIndex(offset_index, segment.start_offset)) > 2
            (state,) = decode_snapshot(snapshot)
            assert state.last_offset == segment.end_offset
            assert [(e.epoch, e.start_offset) for e in parse_leader_epochs(epochs)] == [(0, 0)]
