"""What a local log remembers of remote storage when the tiering of its topic ends and begins again (K-3.12)."""

from aquifer_broker.log.log_config import LogConfig
from fixtures.broker_logs import LogWorkshop, client_batch


async def test_what_was_remote_before_tiering_ended_is_not_taken_for_remote_afterwards(
    workshop: LogWorkshop,
) -> None:
    """The remote data was deleted with the end of tiering, so the local segments are the only ones."""
    tiered = LogConfig(
        remote_storage_enable=True,
        local_retention_bytes=1,
        segment_bytes=100,
        index_interval_bytes=1,
    )
    log = await workshop.open(tiered)
    for _ in range(4):
        await log.append(client_batch(1), leader_epoch=0)
        await log.roll_active()
    log.update_highest_offset_in_remote_storage(1)
    assert await log.apply_local_retention() == 2
    log.update_highest_offset_in_remote_storage(3)

    log.update_config(LogConfig(segment_bytes=100, index_interval_bytes=1))
    assert log.log_start_offset == 2
    log.update_config(tiered)

    assert await log.apply_local_retention() == 0
    assert log.highest_offset_in_remote_storage == -1
    assert (log.log_start_offset, log.local_log_start_offset) == (2, 2)
