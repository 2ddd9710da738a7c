"""What is left to do on the disk for segments that are gone touches nothing that came after them."""

from pathlib import Path

from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_manager import LogManager
from aquifer_broker.log.partition_log import PartitionLog
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from fixtures.broker_logs import NOW_MS, TOPIC_ID, ManualClock, client_batch
from fixtures.polling import eventually

_CONFIG = LogConfig(retention_ms=-1, retention_bytes=0)


async def _fill(log: PartitionLog) -> None:
    for _ in range(3):
        await log.append(client_batch(5, timestamp_ms=NOW_MS), leader_epoch=0)
        await log.roll_active()


async def test_the_removal_of_old_segments_leaves_the_snapshots_of_a_new_topic_of_that_name(
    tmp_path: Path,
) -> None:
    """A copy of a segment takes the producers' state from them."""
    clock = ManualClock()
    async with LogManager([tmp_path], broker_id=1, cluster_id="c", clock=clock) as manager:
        old = await manager.open_log(TopicIdPartition(TOPIC_ID, "events", 0), _CONFIG)
        await _fill(old)
        assert await old.apply_local_retention() == 3
        await manager.delete_log("events", 0)
        new_id = KafkaUuid(bytes(range(1, 17)))
        new = await manager.open_log(TopicIdPartition(new_id, "events", 0), _CONFIG)
        await _fill(new)

        clock.now += 2 * _CONFIG.file_delete_delay_ms
        await eventually(lambda: not list(tmp_path.glob("*-delete")))

        async with new.segment_data(0) as data:
            assert data.producer_snapshot is not None
