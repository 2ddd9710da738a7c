"""A cold read that ends in a hole goes on with the very next record, also when local retention has moved that meanwhile (T14)."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest
from aquifer_broker.handlers.remote_log import RemoteReadRequest
from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_values import FetchIsolation
from aquifer_broker.tiering.fetch_paths import ManagerFetchPath
from aquifer_broker.tiering.manager_client import ManagerClient
from aquifer_broker.tiering.read_silence import ReadSilence
from aquifer_broker.tiering.remote_fetch import FetchPlan, RemoteFetch
from aquifer_broker.tiering.remote_log import TieredRemoteLog
from aquifer_broker.tiering.remote_reads import RemoteReads
from aquifer_core.formats.record_batch import iter_batches
from aquifer_core.ids import KafkaUuid
from aquifer_rpc.channel import connect
from fixtures.broker_logs import LogWorkshop, client_batch
from fixtures.manager_segments import Segment, batch, put
from fixtures.manager_service import manager_bench


class OvertakenClient(ManagerClient):
    """Something happens after the first answer, before the broker takes it in."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def fetch(
        self, request: RemoteFetch, deadline_s: float
    ) -> AsyncGenerator[FetchPlan | bytes | memoryview, None]:
        async with aclosing(super().fetch(request, deadline_s)) as answers:
            async for answer in answers:
                yield answer
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()


@pytest.mark.parametrize("isolation", [FetchIsolation.HIGH_WATERMARK, FetchIsolation.TXN_COMMITTED])
async def test_the_record_behind_a_hole_is_not_skipped_when_it_leaves_the_local_log(
    workshop: LogWorkshop, tmp_path: Path, isolation: FetchIsolation
) -> None:
    log = await workshop.open(LogConfig(remote_storage_enable=True, local_retention_bytes=1))
    for _ in range(4):
        await log.append(client_batch(), leader_epoch=0)
        await log.roll_active()
    async with (
        manager_bench(tmp_path / "manager") as bench,
        connect(f"127.0.0.1:{bench.manager.server.port}") as channel,
    ):
        client = OvertakenClient(channel, broker_id=1, incarnation=KafkaUuid.random())
        reads = RemoteReads(
            ManagerFetchPath(client), max_reads=10, budget_bytes=1 << 20, deadline_s=60.0
        )
        remote = TieredRemoteLog(client, reads, cast(Any, None), ReadSilence(60.0))
        tip = log.topic_id_partition

        async def copied(segment: Segment) -> None:
            metadata = await put(segment, bench.storage, bench.metadata)
            log.update_highest_offset_in_remote_storage(metadata.end_offset)
            await log.apply_local_retention()

        await copied(Segment(tip=tip, batches=[batch(0)], end_offset=1))
        client.meanwhile = lambda: copied(Segment(tip=tip, batches=[batch(2)]))
        read = await remote.read(
            RemoteReadRequest(
                log=log,
                leader_epoch=0,
                fetch_offset=1,
                max_bytes=1000,
                min_one_batch=True,
                isolation=isolation,
            )
        )
        await reads.close()
        assert log.local_log_start_offset == 3
        records = read.records
        assert not hasattr(records, "pieces")
        assert next(iter_batches(bytes(cast(bytes, records)))).base_offset == 2
