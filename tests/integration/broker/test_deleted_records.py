"""What the disk had not yet when the power went: no record that is acknowledged afterwards goes with a deletion of before (SR-25)."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

from aquifer_broker.cluster.hosted_partitions import HostedPartition
from aquifer_broker.handlers.records import DeleteRecordsHandler
from aquifer_broker.handlers.services import BrokerServices
from aquifer_broker.protocol.dispatch import Call
from aquifer_core.formats.record_batch import iter_batches
from fixtures.broker_logs import client_batch
from fixtures.polling import eventually
from fixtures.tiered_broker import TieredBroker, fill, partition_of, tiered_topic
from kio.schema.errors import ErrorCode

WAIT_S: Final = 120.0


async def delete_records(tiered: TieredBroker, offset: int) -> None:
    services = SimpleNamespace(partitions=tiered.partitions, remote=tiered.tiering.remote_log)
    wanted = SimpleNamespace(partition_index=0, offset=offset)
    body = SimpleNamespace(topics=[SimpleNamespace(name="events", partitions=[wanted])])
    handler = DeleteRecordsHandler(cast(BrokerServices, services))
    answer: Any = await handler(cast(Call, SimpleNamespace(body=body)))
    [partition] = answer["topics"][0]["partitions"]
    assert (partition["error_code"], partition["low_watermark"]) == (ErrorCode.none, offset)


async def lose_power(tiered: TieredBroker, hosted: HostedPartition, checkpoints: bytes) -> None:
    """Stops the broker and leaves on its disk what was surely there: what was flushed, and a checkpoint of before."""
    durable_end = hosted.log.recovery_point
    await tiered.stop()
    cut(tiered.root / "logs", hosted.log.active_base_offset, durable_end, checkpoints)


def cut(logs: Path, active_base: int, durable_end: int, checkpoints: bytes) -> None:
    active = logs / "events-0" / f"{active_base:020d}.log"
    content = active.read_bytes()
    kept = sum(each.size_bytes for each in iter_batches(content) if each.last_offset < durable_end)
    active.write_bytes(content[:kept])
    (logs / ".kafka_cleanshutdown").unlink()
    (logs / "log-start-offset-checkpoint").write_bytes(checkpoints)


async def test_records_deleted_just_before_the_power_went_cost_none_of_those_after(
    tiered: TieredBroker,
) -> None:
    hosted = await tiered.create()
    await fill(hosted, 2)
    await eventually(lambda: hosted.log.local_log_start_offset >= 20, timeout_s=WAIT_S)
    await tiered.logs.write_checkpoints()
    checkpoints = (tiered.root / "logs" / "log-start-offset-checkpoint").read_bytes()
    for offset in (20, 22, 24):
        await hosted.log.append(client_batch(2, value=b"%d" % offset), leader_epoch=0)
    await delete_records(tiered, 26)

    async def recorded() -> bool:
        return await tiered.metadata.earliest_log_offset(partition_of("events")) == 26

    await eventually(recorded, timeout_s=WAIT_S)

    await lose_power(tiered, hosted, checkpoints)
    await tiered.start()
    tiered.update(tiered_topic("events", epoch=1))
    hosted = await tiered.hosted_in("events", 1)

    first = (await hosted.log.append(client_batch(2, value=b"new"), leader_epoch=1)).first_offset
    await fill(hosted, 1)
    await tiered.copied(hosted, hosted.log.log_end_offset - 1)
    assert first == 26
    assert hosted.log.log_start_offset == 26


async def test_deleting_records_in_the_middle_of_a_local_segment_does_not_end_copying(
    tiered: TieredBroker,
) -> None:
    """SR-25, SR-16: the segment is copied when it rolls, whole, and what is left of it is read from there."""
    hosted = await tiered.create()
    for offset in (0, 2, 4):
        await hosted.log.append(client_batch(2, value=b"%d" % offset), leader_epoch=0)
    await delete_records(tiered, 3)
    await hosted.log.roll_active()
    await fill(hosted, 1)
    await eventually(lambda: hosted.log.local_log_start_offset >= 16, timeout_s=WAIT_S)
    segments = [
        each async for each in tiered.metadata.list_remote_log_segments(partition_of("events"))
    ]
    assert [(each.start_offset, each.end_offset) for each in segments] == [(0, 5), (6, 15)]
    assert hosted.log.log_start_offset == 3
