"""Offsets by time while local retention moves the border between the tiers (SR-26, K-3.9)."""

from pathlib import Path
from typing import Any, cast

from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_values import TimestampAndOffset
from aquifer_broker.log.partition_log import PartitionLog
from aquifer_broker.tiering.manager_client import ManagerClient
from aquifer_broker.tiering.read_silence import ReadSilence
from aquifer_broker.tiering.remote_log import TieredRemoteLog
from aquifer_core.ids import KafkaUuid
from aquifer_rpc.channel import connect
from fixtures.broker_logs import NOW_MS, LogWorkshop, client_batch
from fixtures.manager_segments import Segment, batch, put
from fixtures.manager_service import manager_bench


class OvertakenClient(ManagerClient):
    """Local retention drops all that is remote while the first answer is on its way."""

    def __init__(self, log: PartitionLog, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._log = log

    async def find_offset(self, *args: Any, **kwargs: Any) -> TimestampAndOffset | None:
        found = await super().find_offset(*args, **kwargs)
        await self._log.apply_local_retention()
        return found


async def test_a_record_that_leaves_the_local_log_during_the_question_is_found(
    workshop: LogWorkshop, tmp_path: Path
) -> None:
    """It was not asked for remotely, because it was local, and it is not local any more."""
    log = await workshop.open(LogConfig(remote_storage_enable=True, local_retention_bytes=1))
    for offset in range(3):
        await log.append(client_batch(timestamp_ms=NOW_MS + offset), leader_epoch=0)
        await log.roll_active()
    async with (
        manager_bench(tmp_path / "manager") as bench,
        connect(f"127.0.0.1:{bench.manager.server.port}") as channel,
    ):
        for offset in range(2):
            segment = Segment(
                tip=log.topic_id_partition, batches=[batch(offset, timestamp_ms=NOW_MS + offset)]
            )
            await put(segment, bench.storage, bench.metadata)
        log.update_highest_offset_in_remote_storage(0)
        assert await log.apply_local_retention() == 1
        log.update_highest_offset_in_remote_storage(1)

        client = OvertakenClient(log, channel, broker_id=1, incarnation=KafkaUuid.random())
        remote = TieredRemoteLog(client, cast(Any, None), cast(Any, None), ReadSilence(5.0))
        found = await remote.offset_for_timestamp(log, NOW_MS + 1)
        if found is None:
            found = await log.offset_for_timestamp(NOW_MS + 1)

        assert log.local_log_start_offset == 2
        assert found is not None
        assert (found.offset, found.timestamp_ms) == (1, NOW_MS + 1)
