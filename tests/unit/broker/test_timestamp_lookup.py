import resource

import cramjam
import pytest
from aquifer_broker.log.log_config import LogConfig
from aquifer_core.formats.record_batch import CompressionCodec, TimestampType
from aquifer_core.formats.records import Record, encode_batch
from fixtures.broker_logs import NOW_MS, LogWorkshop, client_batch


def _batch(times: list[int], codec: CompressionCodec = CompressionCodec.NONE) -> bytes:
    compress = {
        CompressionCodec.GZIP: lambda data: bytes(cramjam.gzip.compress(data)),
        CompressionCodec.SNAPPY: lambda data: bytes(cramjam.snappy.compress_raw(data)),
        CompressionCodec.LZ4: lambda data: bytes(cramjam.lz4.compress(data)),
        CompressionCodec.ZSTD: lambda data: bytes(cramjam.zstd.compress(data)),
    }.get(codec)
    records = [
        Record(offset=index, timestamp_ms=NOW_MS + time_ms, value=b"v")
        for index, time_ms in enumerate(times)
    ]
    return encode_batch(records, codec=codec, compress=compress)


@pytest.mark.parametrize("codec", list(CompressionCodec))
async def test_the_first_record_at_or_after_a_time_is_found(
    workshop: LogWorkshop, codec: CompressionCodec
) -> None:
    log = await workshop.open(LogConfig(index_interval_bytes=1))
    for times in ([10, 12, 11], [20, 22], [21, 30], [5, 6], [40]):
        await log.append(_batch(times, codec), leader_epoch=2)
        await log.roll_active()

    for wanted, offset in [(0, 0), (11, 1), (13, 3), (21, 4), (23, 6), (31, 9), (40, 9)]:
        found = await log.offset_for_timestamp(NOW_MS + wanted)
        assert found is not None
        assert (found.offset, found.leader_epoch) == (offset, 2)
    assert await log.offset_for_timestamp(NOW_MS + 41) is None


async def test_records_below_the_log_start_are_not_found(workshop: LogWorkshop) -> None:
    log = await workshop.open()
    await log.append(_batch([10, 20, 30]), leader_epoch=0)
    await log.increase_log_start_offset(1)

    found = await log.offset_for_timestamp(NOW_MS)

    assert found is not None
    assert (found.offset, found.timestamp_ms) == (1, NOW_MS + 20)


async def test_log_append_time_gives_every_record_the_time_of_its_batch(
    workshop: LogWorkshop,
) -> None:
    log = await workshop.open(LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    await log.append(client_batch(3), leader_epoch=0)
    workshop.clock.now += 10
    await log.append(client_batch(3), leader_epoch=0)

    found = await log.offset_for_timestamp(NOW_MS + 1)

    assert found is not None
    assert (found.offset, found.timestamp_ms) == (3, NOW_MS + 10)


async def test_the_record_with_the_largest_timestamp_is_found(workshop: LogWorkshop) -> None:
    log = await workshop.open()
    assert await log.max_timestamp() is None
    for times in ([10, 50, 20], [30, 40]):
        await log.append(_batch(times), leader_epoch=0)
        await log.roll_active()

    found = await log.max_timestamp()

    assert found is not None
    assert (found.offset, found.timestamp_ms) == (1, NOW_MS + 50)


async def test_a_batch_that_would_fill_the_memory_is_not_opened(workshop: LogWorkshop) -> None:
    """A few kilobytes from any client may grow to gigabytes; its first offset is close enough."""
    frame = bytes(cramjam.zstd.compress(bytes(64 << 20)))
    records = [Record(offset=index, timestamp_ms=NOW_MS + index, value=b"v") for index in range(3)]
    bomb = encode_batch(records, codec=CompressionCodec.ZSTD, compress=lambda _: frame * 16)
    assert len(bomb) < 100_000
    log = await workshop.open()
    await log.append(client_batch(5, timestamp_ms=NOW_MS - 1), leader_epoch=0)
    await log.append(bomb, leader_epoch=0)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    found = await log.offset_for_timestamp(NOW_MS + 1)

    assert found is not None
    assert (found.offset, found.timestamp_ms) == (5, NOW_MS + 2)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 600 << 10
