"""A leader whose disk or files were lost takes its log's end, epochs and producers from remote storage (K-3.11)."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from aquifer_broker.cluster.hosted_partitions import HostedPartition
from aquifer_broker.handlers.remote_log import RemoteRead, RemoteReadRequest
from aquifer_broker.log.log_values import FetchIsolation
from aquifer_broker.log.remote_check import REMOTE_CHECK_NAME
from aquifer_core.errors import RemoteStorageUnavailableError
from aquifer_core.fakes.remote_log_metadata import InMemoryRemoteLogMetadataManager
from aquifer_core.formats.record_batch import iter_batches
from aquifer_core.formats.records import decode_records
from aquifer_core.segment import RemoteLogSegmentMetadata
from fixtures.broker_logs import client_batch
from fixtures.manager_world import Fault, Faults, faulty
from fixtures.polling import eventually
from fixtures.tiered_broker import TieredBroker, fill, partition_of, tiered_topic
from kio.schema.errors import ErrorCode

WAIT_S: Final = 120.0
ASKED: Final = "earliest_log_offset"
CHECKPOINT: Final = "leader-epoch-checkpoint"


@pytest.fixture
async def faults(tiered: TieredBroker) -> AsyncIterator[Faults]:
    """Faults of the metadata role, for a broker and a manager that use it from now on."""
    made = Faults()
    await tiered.stop()
    await tiered.stop_manager()
    tiered.metadata = faulty(InMemoryRemoteLogMetadataManager, made, [ASKED])
    await tiered.start_manager()
    await tiered.start()
    yield made
    made.by_method.clear()


def folder(tiered: TieredBroker, name: str = "events") -> Path:
    return tiered.root / "logs" / f"{name}-0"


async def restart(tiered: TieredBroker, *lost: Path, epoch: int, **configs: str) -> None:
    """Stop the broker, take paths from it, start it and give it the partition in an epoch."""
    await tiered.stop()
    for path in lost:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    await tiered.start()
    tiered.update(tiered_topic("events", epoch=epoch, **configs))


async def hosted_in(tiered: TieredBroker, epoch: int, name: str = "events") -> HostedPartition:
    await eventually(lambda: tiered.hosted(name, epoch) is not None, timeout_s=WAIT_S)
    hosted = tiered.hosted(name, epoch)
    assert hosted is not None
    return hosted


async def until_held_back(tiered: TieredBroker) -> None:
    """Wait until remote storage was asked for what a log lacks, in vain."""
    await eventually(lambda: bool(tiered.partitions.awaited.logs()), timeout_s=WAIT_S)
    async with asyncio.timeout(WAIT_S):
        await tiered.partitions.awaited.wait_asked()


async def cold(tiered: TieredBroker, hosted: HostedPartition, end: int) -> None:
    """Wait until everything below an offset is remote only."""
    log = hosted.log
    await eventually(lambda: log.local_log_start_offset >= end, timeout_s=WAIT_S)


async def segments(tiered: TieredBroker) -> list[RemoteLogSegmentMetadata]:
    listed = tiered.metadata.list_remote_log_segments(partition_of("events"))
    return [each async for each in listed]


async def read_all(tiered: TieredBroker, hosted: HostedPartition) -> list[int]:
    """Offsets of all records, read as a consumer does, values checked."""
    offset, found = hosted.log.log_start_offset, []
    while offset < hosted.log.high_watermark:
        if offset < hosted.log.local_log_start_offset:
            records = joined(await tiered.tiering.remote_log.read(request(hosted, offset)))
        else:
            records = bytes((await hosted.log.read(offset, 1 << 20)).records)
        for batch in iter_batches(records):
            for record in decode_records(batch):
                assert record.value == b"%d" % batch.base_offset
                found.append(record.offset)
            offset = batch.next_offset
    return found


def request(hosted: HostedPartition, offset: int) -> RemoteReadRequest:
    return RemoteReadRequest(
        log=hosted.log,
        leader_epoch=hosted.leader_epoch,
        fetch_offset=offset,
        max_bytes=1 << 20,
        min_one_batch=True,
        isolation=FetchIsolation.HIGH_WATERMARK,
    )


def joined(read: RemoteRead) -> bytes:
    pieces = getattr(read.records, "pieces", None)
    return b"".join(pieces) if pieces is not None else bytes(read.records)  # type: ignore[arg-type]


@pytest.mark.parametrize("lost", ["logs", "logs/events-0"])
async def test_a_lost_disk_is_made_up_for_from_remote_storage(
    tiered: TieredBroker, lost: str
) -> None:
    """Offsets go on behind what is remote, epochs and producers are known, nothing remote is deleted."""
    hosted = await tiered.create()
    await fill(hosted, 2)
    tiered.update(tiered_topic("events", epoch=2))
    hosted = await hosted_in(tiered, 2)
    await fill(hosted, 1)
    last = client_batch(2, value=b"30", producer_id=7, epoch=3, sequence=40)
    await hosted.log.append(last, leader_epoch=2)
    await hosted.log.roll_active()
    await cold(tiered, hosted, 32)
    await fill(hosted, 1)
    await cold(tiered, hosted, 42)
    await hosted.log.append(client_batch(2, value=b"42"), leader_epoch=2)
    before = await segments(tiered)

    await restart(tiered, tiered.root / lost, epoch=5)

    hosted = await hosted_in(tiered, 5)
    log = hosted.log
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 42, 42)
    assert log.leader_epochs.as_map() == {0: 0, 2: 20, 5: 42}
    assert not (folder(tiered) / REMOTE_CHECK_NAME).exists()
    again = await log.append(last, leader_epoch=5)
    assert (again.first_offset, log.log_end_offset) == (30, 42)
    await fill(hosted, 2)
    await cold(tiered, hosted, 62)
    await log.append(client_batch(2, value=b"62"), leader_epoch=5)
    assert await read_all(tiered, hosted) == list(range(64))
    assert [each for each in await segments(tiered) if each in before] == before


async def test_nothing_is_served_at_offset_0_while_metadata_is_away(
    tiered: TieredBroker, faults: Faults
) -> None:
    """Not even after another restart; and then everything is."""
    hosted = await tiered.create()
    await fill(hosted, 2)
    await cold(tiered, hosted, 20)
    faults.inject(ASKED, Fault(times=10**9))

    await restart(tiered, tiered.root / "logs", epoch=1)
    for epoch in (1, 2):
        await until_held_back(tiered)
        assert tiered.partitions.get("events", 0) is None
        assert tiered.partitions.leader("events", 0) is ErrorCode.not_leader_or_follower
        await restart(tiered, epoch=epoch + 1)
        assert (folder(tiered) / REMOTE_CHECK_NAME).exists()
    faults.by_method.clear()

    hosted = await hosted_in(tiered, 3)
    assert (hosted.log.log_start_offset, hosted.log.log_end_offset) == (0, 20)
    await fill(hosted, 1)
    assert await read_all(tiered, hosted) == list(range(30))


async def test_new_partitions_do_not_wait_for_one_that_the_store_keeps_waiting(
    tiered: TieredBroker,
) -> None:
    """Hot does not wait for cold (SR-36)."""
    hosted = await tiered.create()
    await fill(hosted, 2)
    await cold(tiered, hosted, 20)
    away = RemoteStorageUnavailableError("away")
    tiered.storage.fail("fetch_index", *[away] * 1000)

    await restart(tiered, tiered.root / "logs", epoch=1)
    await eventually(lambda: tiered.storage.calls.count("fetch_index") > 1, timeout_s=WAIT_S)
    tiered.update(tiered_topic("others"))
    others = await hosted_in(tiered, 0, "others")

    assert tiered.partitions.get("events", 0) is None
    assert (await others.log.append(client_batch(2), leader_epoch=0)).first_offset == 0
    tiered.storage.failures.clear()
    assert (await hosted_in(tiered, 1)).log.log_end_offset == 20


async def test_every_partition_of_a_new_topic_is_hosted(tiered: TieredBroker) -> None:
    """Also those that are confirmed while others of the topic are still being made."""
    topic = tiered_topic("events")
    (first,) = topic.partitions
    numbers = range(30)

    tiered.update(replace(topic, partitions=tuple(replace(first, partition=n) for n in numbers)))

    await eventually(
        lambda: all(tiered.partitions.get("events", number) for number in numbers),
        timeout_s=WAIT_S,
    )
    assert not tiered.partitions.awaited.logs()


async def test_an_intact_log_is_served_while_metadata_is_away(
    tiered: TieredBroker, faults: Faults
) -> None:
    """Also one that has no record yet (SR-36)."""
    hosted = await tiered.create()
    await tiered.create("empty")
    await fill(hosted, 1)
    await cold(tiered, hosted, 10)
    faults.inject(ASKED, Fault(times=10**9))

    await restart(tiered, epoch=1)
    tiered.update(tiered_topic("empty", epoch=1))

    hosted = await hosted_in(tiered, 1)
    assert (await hosted.log.append(client_batch(2), leader_epoch=1)).first_offset == 10
    empty = await hosted_in(tiered, 1, "empty")
    assert (await empty.log.append(client_batch(2), leader_epoch=1)).first_offset == 0
    assert not tiered.partitions.awaited.logs()


async def test_a_leader_epoch_that_is_remote_already_leads_nothing(tiered: TieredBroker) -> None:
    hosted = await tiered.create(epoch=4)
    await fill(hosted, 1)
    await cold(tiered, hosted, 10)

    await restart(tiered, folder(tiered), epoch=4, retention_ms="1000000000")

    await until_held_back(tiered)
    assert tiered.partitions.get("events", 0) is None
    tiered.update(tiered_topic("events", epoch=5))
    hosted = await hosted_in(tiered, 5)
    assert hosted.log.leader_epochs.as_map() == {4: 0, 5: 10}


async def test_the_log_starts_where_it_was_cut_before_the_disk_was_lost(
    tiered: TieredBroker,
) -> None:
    """DeleteRecords is not undone, also when it went past what is remote."""
    hosted = await tiered.create()
    await fill(hosted, 2)
    await cold(tiered, hosted, 20)
    await hosted.log.append(client_batch(4, value=b"20"), leader_epoch=0)
    for offset in (13, 22):
        await hosted.log.increase_log_start_offset(offset)
        tiered.tiering.remote_log.log_start_raised(hosted.log, hosted.leader_epoch)

        async def recorded(offset: int = offset) -> bool:
            return await tiered.metadata.earliest_log_offset(partition_of("events")) == offset

        await eventually(recorded, timeout_s=WAIT_S)
        end = max(20, offset)

        await restart(tiered, folder(tiered), epoch=offset)

        hosted = await hosted_in(tiered, offset)
        assert (hosted.log.log_start_offset, hosted.log.log_end_offset) == (offset, end)
        assert hosted.log.leader_epochs.latest is not None
        await hosted.log.append(client_batch(24 - end, value=b"20"), leader_epoch=offset)


@pytest.mark.parametrize("damage", ["lost", "corrupt"])
async def test_leader_epochs_are_found_again_in_batches_and_in_remote_storage(
    tiered: TieredBroker, faults: Faults, damage: str
) -> None:
    """Local records are served at once, remote ones as soon as their epochs are known; none is deleted meanwhile."""
    hosted = await tiered.create()
    await fill(hosted, 2)
    for epoch in (3, 4):
        tiered.update(tiered_topic("events", epoch=epoch))
        hosted = await hosted_in(tiered, epoch)
        await fill(hosted, 1)
    await cold(tiered, hosted, 40)
    await hosted.log.append(client_batch(2, value=b"40"), leader_epoch=4)
    before = await segments(tiered)
    assert hosted.log.leader_epochs.as_map() == {0: 0, 3: 20, 4: 30}
    faults.inject(ASKED, Fault(times=10**9))

    await tiered.stop()
    checkpoint = folder(tiered) / CHECKPOINT
    checkpoint.unlink() if damage == "lost" else checkpoint.write_text("0\nnonsense\n")
    await restart(tiered, epoch=6)

    hosted = await hosted_in(tiered, 6)
    log = hosted.log
    assert log.leader_epochs.as_map() == {4: 40, 6: 42}
    await log.append(client_batch(2, value=b"42"), leader_epoch=6)
    assert log.lacks_leader_epochs
    faults.by_method.clear()
    await eventually(lambda: not log.lacks_leader_epochs, timeout_s=WAIT_S)
    assert log.leader_epochs.as_map() == {0: 0, 3: 20, 4: 30, 6: 42}
    assert await read_all(tiered, hosted) == list(range(44))
    await log.roll_active()
    await cold(tiered, hosted, 44)
    assert [each for each in await segments(tiered) if each in before] == before

    await restart(tiered, epoch=7)

    hosted = await hosted_in(tiered, 7)
    assert hosted.log.leader_epochs.as_map() == {0: 0, 3: 20, 4: 30, 6: 42, 7: 44}
