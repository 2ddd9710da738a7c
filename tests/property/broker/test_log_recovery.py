import asyncio
import random
import tempfile
from pathlib import Path

from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_values import FetchIsolation
from fixtures.broker_logs import LogWorkshop, batches_of, client_batch, read_values
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

_CONFIG = LogConfig(index_interval_bytes=150, segment_bytes=2000)
_QUIET = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


async def _crash_and_recover(root: Path, sizes: list[int], cut: float, noise: int) -> None:
    workshop = LogWorkshop(root)
    log = await workshop.open(_CONFIG)
    for number, size in enumerate(sizes):
        await log.append(client_batch(size, value=b"%d" % number), leader_epoch=number // 7)
    values = await read_values(log)
    path = log.directory / f"{log.active_base_offset:020d}.log"
    whole = path.read_bytes()
    position = round(len(whole) * cut)
    kept = [batch for batch in batches_of(path) if batch.position + batch.size_bytes <= position]
    end = kept[-1].next_offset if kept else log.active_base_offset
    # A crash loses what was not written, and may leave a block of anything in its place.
    path.write_bytes(whole[:position] + random.Random(noise).randbytes(noise))

    again = await workshop.open(_CONFIG)

    assert again.log_end_offset == end
    assert await read_values(again) == [each for each in values if each[0] < end]
    assert path.read_bytes() == whole[: sum(batch.size_bytes for batch in kept)]
    epochs = again.leader_epochs.as_map()
    assert all(start < end for start in epochs.values())
    info = await again.append(client_batch(2, value=b"after"), leader_epoch=50)
    assert info.first_offset == end
    await again.close()
    clean = await workshop.open(_CONFIG, clean=True)
    assert (await read_values(clean))[-1] == (end + 1, b"after")
    await workshop.close()


@_QUIET
@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=40),
    cut=st.floats(0, 1),
    noise=st.integers(0, 200),
)
def test_recovery_after_a_crash_at_any_byte_keeps_exactly_the_whole_batches(
    sizes: list[int], cut: float, noise: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_crash_and_recover(Path(directory), sizes, cut, noise))


async def _read_everywhere(root: Path, sizes: list[int], bound: float, max_bytes: int) -> None:
    workshop = LogWorkshop(root)
    log = await workshop.open(_CONFIG, replicated=True)
    for size in sizes:
        await log.append(client_batch(size), leader_epoch=0)
    high_watermark = log.set_high_watermark(round(log.log_end_offset * bound))
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + size)
    visible = [start for start in starts[1:] if start <= high_watermark]
    for offset in range(log.log_end_offset + 1):
        read = await log.read(offset, max_bytes)
        holder = max(start for start in starts if start <= offset)
        readable = any(holder < end for end in visible)
        assert bool(len(read.records)) == readable
        if readable:
            (base,) = (int.from_bytes(bytes(read.records[:8]), "big"),)
            assert base == holder
    total = await log.read(0, 1 << 30, isolation=FetchIsolation.LOG_END)
    assert len(total.records) > 0
    await workshop.close()


@_QUIET
@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=30),
    bound=st.floats(0, 1),
    max_bytes=st.integers(1, 3000),
)
def test_a_read_at_any_offset_starts_at_its_batch_and_stays_below_the_high_watermark(
    sizes: list[int], bound: float, max_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_read_everywhere(Path(directory), sizes, bound, max_bytes))
