from aquifer_broker.handlers.hot_traffic import HotTraffic
from aquifer_broker.protocol.client import Client


class _Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def _client() -> Client:
    return Client(host="127.0.0.1", port=1, listener="PLAINTEXT")


def test_traffic_is_hot_for_as_long_as_is_asked_for() -> None:
    clock = _Clock()
    hot = HotTraffic(clock)
    assert not hot.is_within(1000)
    hot.seen()
    clock.now_s += 1
    assert hot.is_within(1)
    clock.now_s += 0.1
    assert not hot.is_within(1)


def test_local_records_are_hot_but_not_for_who_has_just_read_remote_ones() -> None:
    """A consumer of many partitions that catches up would give way to itself."""
    clock = _Clock()
    hot, catching_up, other = HotTraffic(clock), _client(), _client()
    hot.fetched(catching_up, local=True, remote=True)
    clock.now_s += 9
    hot.fetched(catching_up, local=True, remote=False)
    assert not hot.is_within(1)
    hot.fetched(other, local=False, remote=False)
    assert not hot.is_within(1)
    hot.fetched(other, local=True, remote=False)
    assert hot.is_within(1)

    clock.now_s += 5
    hot.fetched(catching_up, local=True, remote=False)
    assert hot.is_within(1)
