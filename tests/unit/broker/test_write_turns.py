"""Large answers leave in slices, and no connection has two turns while another waits."""

import asyncio

from aquifer_broker.protocol.write_turns import WriteTurns, slices_of
from hypothesis import given
from hypothesis import strategies as st

_BUFFERS = st.lists(st.binary(max_size=40), max_size=12)


@given(buffers=_BUFFERS, max_bytes=st.integers(1, 50))
def test_slices_are_the_buffers_in_order_and_none_is_too_large(
    buffers: list[bytes], max_bytes: int
) -> None:
    slices = list(slices_of(buffers, max_bytes))

    assert b"".join(b"".join(each) for each in slices) == b"".join(buffers)
    sizes = [sum(map(len, each)) for each in slices]
    assert all(size == max_bytes for size in sizes[:-1])
    assert all(size <= max_bytes for size in sizes)


async def test_one_turn_is_given_in_each_pass_of_the_loop_in_order_of_asking() -> None:
    turns = WriteTurns()
    passes = 0
    taken: list[tuple[str, int]] = []

    async def write(name: str, slices: int) -> None:
        for _ in range(slices):
            await turns.next()
            taken.append((name, passes))

    def count() -> None:
        nonlocal passes
        passes += 1
        if not writing.done():
            asyncio.get_running_loop().call_soon(count)

    writing = asyncio.gather(write("a", 4), write("b", 2), write("c", 2))
    count()
    await writing

    assert len({when for _, when in taken}) == len(taken)
    assert [name for name, _ in taken] == ["a", "a", "b", "c", "a", "b", "c", "a"]


async def test_who_gave_up_is_passed_over() -> None:
    turns = WriteTurns()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(turns.next())
        gone = group.create_task(turns.next())
        last = group.create_task(turns.next())
        await asyncio.sleep(0)
        assert not gone.done()
        gone.cancel()
        await last
        await turns.next()
    assert gone.cancelled()
