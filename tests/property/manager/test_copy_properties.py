"""Whatever fails and whoever dies, in the end everything is remote once and nothing dangles (T10, T16)."""

import asyncio
import contextlib
from typing import Any

from aquifer_core.errors import AquiferError, DeadlineExceededError, RemoteStorageUnavailableError
from fixtures.manager_tasks import TIP, TaskWorld
from fixtures.manager_world import Fault
from hypothesis import given, settings
from hypothesis import strategies as st

METADATA_METHODS = [
    "add_remote_log_segment_metadata",
    "update_remote_log_segment_metadata",
    "highest_offset_for_epoch",
    "on_partition_leadership_changes",
    "update_earliest_log_offset",
    "list_retention_candidates",
    "delete_log_segment_data",
]
BROKER_METHODS = ["describe_logs", "copy_segment", "update_remote_log_offsets"]

faults = st.tuples(
    st.sampled_from([*METADATA_METHODS, *BROKER_METHODS]),
    st.booleans(),
    st.sampled_from([1, 2, 200]),
    st.sampled_from([RemoteStorageUnavailableError, DeadlineExceededError, RuntimeError]),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("fail"), faults),
        st.sampled_from(["copy", "expire", "roll", "restart", "new leader epoch", "heal", "wait"]),
    ),
    max_size=25,
)


def inject(world: TaskWorld, method: str, after: bool, times: int, error: type[Exception]) -> None:
    target = world.broker.faults if method in BROKER_METHODS else world.faults
    target.inject(method, Fault(error("injected"), times=times, after=after))


async def play(world: TaskWorld, script: list[Any]) -> None:
    log = world.leading()
    epoch = 0
    for step in script:
        with contextlib.suppress(AquiferError, RuntimeError):
            match step:
                case ("fail", (method, after, times, error)):
                    inject(world, method, after, times, error)
                case "copy":
                    await world.copy()
                case "expire":
                    await world.expire()
                case "roll":
                    world.roll(log, 1)
                case "restart":
                    world.restart()
                    world.announce(epoch)
                case "new leader epoch":
                    epoch += 1
                    world.leading(epoch=epoch)
                case "heal":
                    heal(world)
                case "wait":
                    await world.clock.sleep(60)
    heal(world)
    world.roll(log, 1)


def heal(world: TaskWorld) -> None:
    world.faults.by_method.clear()
    world.broker.faults.by_method.clear()


async def calm_down(world: TaskWorld) -> None:
    """What the scheduler would do once everything works again: run, wait past the age of garbage, run."""
    for _ in range(3):
        while (await world.copy()).more_work:
            pass
        await world.expire()
        await world.clock.sleep(4000)


@settings(max_examples=200, deadline=None)
@given(script=steps)
def test_every_rolled_segment_ends_up_remote_and_nothing_else_is_left(script: list[Any]) -> None:
    async def main() -> None:
        world = TaskWorld()
        await play(world, script)
        await calm_down(world)
        log = world.broker.logs[TIP]
        finished = await world.finished()
        covered = {offset for start, end in finished for offset in range(start, end + 1)}
        assert covered == set(range(log.log_end_offset))
        assert await world.nothing_dangles()
        assert log.highest_remote_offset == log.log_end_offset - 1
        assert world.registry.require(TIP).work.in_progress == set()

    asyncio.run(main())
