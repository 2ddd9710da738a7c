"""Back-pressure: what a connection holds is bounded, and so is what all of them hold."""

import struct
import tracemalloc

from aquifer_broker.protocol.budget import RequestBudget, ResponseBudget
from aquifer_broker.protocol.connection import ConnectionState


class Connection:
    """A connection state and what it asked for."""

    def __init__(self, budget: RequestBudget) -> None:
        self.resumed = 0
        self.state = ConnectionState(
            max_request_bytes=10_000_000, budget=budget, resume=self._resume
        )

    def _resume(self) -> None:
        self.resumed += 1

    def receive(self, data: bytes) -> None:
        while data:
            buffer = self.state.buffer()
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            self.state.received(size)
            data = data[size:]

    def announce(self, size: int) -> None:
        self.receive(struct.pack(">i", size) + b"x")

    def answer_one(self) -> None:
        frame = self.state.next_frame()
        assert frame is not None
        self.state.done(len(frame))


def frame(size: int) -> bytes:
    return struct.pack(">i", size) + bytes(size)


def test_requests_come_out_in_the_order_they_came_in() -> None:
    connection = Connection(RequestBudget(1000))
    connection.receive(struct.pack(">i", 1) + b"a" + struct.pack(">i", 1) + b"b")
    frames = [connection.state.next_frame() for _ in range(3)]
    assert [bytes(each) if each is not None else None for each in frames] == [b"a", b"b", None]


def test_reading_stops_when_too_many_requests_wait_and_goes_on_when_one_is_answered() -> None:
    connection = Connection(RequestBudget(1_000_000))
    while connection.state.wants_bytes:
        connection.receive(frame(10))
    assert connection.resumed == 0
    connection.answer_one()
    assert connection.resumed == 1
    assert connection.state.wants_bytes


def test_a_request_over_the_budget_waits_until_others_are_answered() -> None:
    budget = RequestBudget(300_000)
    first, second = Connection(budget), Connection(budget)
    first.receive(frame(200_000))
    second.announce(200_000)
    assert not second.state.wants_bytes
    first.answer_one()
    assert second.resumed == 1
    assert second.state.wants_bytes
    assert budget.used_bytes == 200_000


def test_a_request_that_waits_for_the_budget_takes_no_memory_yet() -> None:
    """Nine bytes each from some clients, or large requests of many at once, took as much as they announced."""
    budget = RequestBudget(300_000)
    holder = Connection(budget)
    holder.receive(frame(200_000))
    waiting = [Connection(budget) for _ in range(5)]
    tracemalloc.start()
    try:
        for connection in waiting:
            connection.announce(9_000_000)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1_000_000
    assert not any(connection.state.wants_bytes for connection in waiting)
    holder.answer_one()
    assert waiting[0].state.wants_bytes
    waiting[0].receive(bytes(8_999_999))
    received = waiting[0].state.next_frame()
    assert received is not None
    assert (len(received), bytes(received[:2])) == (9_000_000, b"x\0")


def test_a_request_larger_than_the_budget_is_admitted_alone() -> None:
    budget = RequestBudget(1000)
    connection = Connection(budget)
    connection.receive(frame(200_000))
    assert connection.state.next_frame() is not None


def test_waiters_are_served_in_order_and_a_small_one_does_not_overtake() -> None:
    budget = RequestBudget(300_000)
    holder, large, small = Connection(budget), Connection(budget), Connection(budget)
    holder.receive(frame(250_000))
    large.announce(280_000)
    small.announce(100_000)
    assert not small.state.wants_bytes
    holder.answer_one()
    assert large.state.wants_bytes
    assert not small.state.wants_bytes


def test_a_connection_that_goes_away_gives_back_what_it_held() -> None:
    budget = RequestBudget(300_000)
    gone, waiting, next_one = Connection(budget), Connection(budget), Connection(budget)
    gone.receive(frame(200_000) + frame(10))
    waiting.announce(250_000)
    next_one.announce(250_000)
    waiting.state.close()
    gone.state.close()
    gone.state.close()
    assert next_one.state.wants_bytes
    assert budget.used_bytes == 250_000


def test_a_connection_that_goes_away_in_the_middle_of_a_request_gives_back_its_memory() -> None:
    """What is left of it refers to itself, and many such clients ended the broker before the collector came."""
    budget = RequestBudget(100_000_000)
    gone = [Connection(budget) for _ in range(5)]
    tracemalloc.start()
    try:
        for connection in gone:
            connection.announce(9_000_000)
            connection.receive(bytes(1000))
            connection.state.close()
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 1_000_000
    assert budget.used_bytes == 0


def test_fetches_get_less_when_much_is_on_its_way_but_never_nothing() -> None:
    budget = ResponseBudget(1000, floor_bytes=100)
    assert budget.grant(5000) == 1000
    budget.hold(950)
    assert budget.grant(5000) == 100
    budget.release(950)
    assert budget.grant(500) == 500
