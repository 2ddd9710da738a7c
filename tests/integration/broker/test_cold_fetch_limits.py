"""The limits of a fetch hold for the cold part as for the local one: the first batch always comes (KIP-74)."""

from types import SimpleNamespace
from typing import cast

import pytest
from aquifer_broker.cluster.hosted_partitions import HostedPartition
from aquifer_broker.handlers.fetch_read import FetchPass, FetchTarget, PartitionRead
from aquifer_broker.handlers.fetch_remote import read_remote
from aquifer_broker.handlers.services import BrokerServices
from aquifer_broker.log.log_values import FetchIsolation
from aquifer_broker.protocol.budget import ResponseBudget
from aquifer_core.formats.record_batch import iter_batches
from fixtures.polling import eventually
from fixtures.tiered_broker import TieredBroker, fill
from kio.schema.errors import ErrorCode


@pytest.fixture
async def cold(tiered: TieredBroker) -> HostedPartition:
    """A partition whose first two segments are remote only."""
    hosted = await tiered.create(local_retention_bytes="1")
    await fill(hosted, 3)
    await tiered.copied(hosted, 29)

    async def is_remote_only() -> bool:
        await hosted.log.apply_local_retention()
        return hosted.log.local_log_start_offset == 20

    await eventually(is_remote_only)
    return hosted


async def fetch(
    tiered: TieredBroker, hosted: HostedPartition, max_bytes: int, partition_max_bytes: int
) -> tuple[list[PartitionRead], list[list[int]]]:
    """Fetch offset 0 and offset 10 of the partition in one request; return the reads and what came."""
    services = cast(
        BrokerServices,
        SimpleNamespace(
            partitions=tiered.partitions,
            remote=tiered.tiering.remote_log,
            response_budget=ResponseBudget(1 << 30),
            config=SimpleNamespace(remote_fetch_max_wait_ms=60_000),
        ),
    )
    fetch_pass = FetchPass(
        services,
        isolation=FetchIsolation.HIGH_WATERMARK,
        is_follower=False,
        max_bytes=max_bytes,
    )
    reads = [
        await fetch_pass.read(
            FetchTarget(
                key=("events", 0),
                topic=hosted.topic_id_partition,
                partition=0,
                fetch_offset=offset,
                max_bytes=partition_max_bytes,
            )
        )
        for offset in (0, 10)
    ]
    assert await read_remote(services, reads) == 0
    return reads, [
        [batch.base_offset for batch in iter_batches(bytes(b"".join(_pieces(read))))]
        for read in reads
    ]


def _pieces(read: PartitionRead) -> list[bytes | memoryview]:
    records = read.records
    return list(getattr(records, "pieces", [records]))


@pytest.mark.parametrize(
    ("max_bytes", "partition_max_bytes"), [(0, 1 << 20), (1 << 20, 0), (0, 0), (1, 1)]
)
async def test_a_client_that_allows_no_bytes_gets_the_first_cold_batch(
    tiered: TieredBroker, cold: HostedPartition, max_bytes: int, partition_max_bytes: int
) -> None:
    reads, offsets = await fetch(tiered, cold, max_bytes, partition_max_bytes)
    assert {read.error for read in reads} == {ErrorCode.none}
    assert offsets == [[0], []]


async def test_what_fits_into_both_limits_comes(
    tiered: TieredBroker, cold: HostedPartition
) -> None:
    _, offsets = await fetch(tiered, cold, 1 << 20, 1 << 18)
    assert offsets == [[0, 2, 4, 6, 8], [10, 12, 14, 16, 18]]
