"""What a broker tells a manager is in the end what it hosts, whatever changes while it is being told (SR-15)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from aquifer_broker.tiering.announcer import Announcer
from aquifer_broker.tiering.manager_client import ManagerClient, PartitionRole, TieringConfig
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_manager.domain.tasks import TaskType
from aquifer_rpc.channel import connect
from fixtures.manager_service import ManagerBench, manager_bench
from fixtures.manager_world import SimulatedLog, partition
from fixtures.polling import eventually

_CONFIG = TieringConfig(
    remote_storage_enable=True,
    retention_ms=-1,
    retention_bytes=-1,
    local_retention_ms=-2,
    local_retention_bytes=-2,
    remote_log_copy_disable=False,
)


class Hosting:
    """What is hosted; `later` takes effect once it was looked at."""

    def __init__(self) -> None:
        self.now: Sequence[PartitionRole] = ()
        self.later: Sequence[PartitionRole] | None = None

    def roles(self) -> Sequence[PartitionRole]:
        looked_at = self.now
        if self.later is not None:
            self.now, self.later = self.later, None
        return looked_at


@asynccontextmanager
async def _announcing(
    hosting: Hosting, data_dir: Path
) -> AsyncIterator[tuple[Announcer, ManagerBench]]:
    async with (
        manager_bench(data_dir, task_interval_ms=3_600_000) as bench,
        connect(f"127.0.0.1:{bench.manager.server.port}") as channel,
    ):
        announcer = Announcer(
            ManagerClient(channel, broker_id=1, incarnation=KafkaUuid.random()),
            broker_log_address=lambda: bench.broker_address,
            hosted=hosting.roles,
            delete_when_stopped=lambda _: False,
        )
        yield announcer, bench


def _known(bench: ManagerBench) -> dict[TopicIdPartition, tuple[int, int]]:
    """Leader epoch and retention of each partition, as the manager knows them."""
    return {
        view.topic_id_partition: (view.leader_epoch, view.config.retention_ms)
        for view in bench.manager.manager.list_partitions()
    }


async def test_leadership_that_moves_while_settings_are_announced_is_announced_as_well(
    tmp_path: Path,
) -> None:
    """Otherwise the manager would go on asking in an old leader epoch, and nothing would be copied ever again."""
    hosting = Hosting()
    first, second = partition(number=0), partition(number=1)
    role = PartitionRole(topic_id_partition=first, is_leader=True, leader_epoch=0, config=_CONFIG)
    async with _announcing(hosting, tmp_path) as (announcer, bench):
        hosting.now = [role]
        await announcer.run_once()
        changed = replace(role, config=replace(_CONFIG, retention_ms=1000))
        hosting.now = [changed]
        hosting.later = [
            replace(changed, leader_epoch=1),
            replace(changed, topic_id_partition=second),
        ]
        announcer.changed()
        await announcer.run_once()
        announcer.changed()
        await announcer.run_once()
        assert _known(bench) == {first: (1, 1000), second: (0, 1000)}


async def test_a_segment_rolled_while_the_manager_is_told_of_another_is_told_as_well(
    tmp_path: Path,
) -> None:
    """Otherwise it would wait for the task's interval."""
    hosting = Hosting()
    tip = partition()
    hosting.now = [
        PartitionRole(topic_id_partition=tip, is_leader=True, leader_epoch=0, config=_CONFIG)
    ]
    async with _announcing(hosting, tmp_path) as (announcer, bench):
        bench.broker.add(SimulatedLog(tip))

        async def ran_after(runs: int) -> int:
            return await eventually(lambda: _copy_runs(bench) > runs and _copy_runs(bench))

        await announcer.run_once()
        runs = await ran_after(0)
        announcer.rolled(tip)
        telling = asyncio.create_task(announcer.run_once())
        await asyncio.sleep(0)
        announcer.rolled(tip)
        await telling
        runs = await ran_after(runs)
        await announcer.run_once()
        await ran_after(runs)


def _copy_runs(bench: ManagerBench) -> int:
    """How often the copy task has run; 0 while it does."""
    [copies] = [each for each in bench.manager.task_states() if each.key.type is TaskType.COPY]
    return 0 if copies.running else copies.runs
