"""Copy lag and what operators see (T03)."""

import pytest
from aquifer_manager.domain.assignment import PartitionRole, RegisteredPartition
from aquifer_manager.domain.log_observer import LogObserver
from aquifer_manager.domain.partition_view import CopyLag, copy_lag, lag_of, view_of
from aquifer_manager.domain.partition_work import PartitionWork
from aquifer_manager.domain.ports import LogQuery, RolledSegment
from aquifer_manager.domain.registry import Registry
from aquifer_manager.domain.topic_config import TopicConfig
from fixtures.manager_world import (
    START_MS,
    Fault,
    HastyClock,
    SimulatedBroker,
    SimulatedBrokers,
    SimulatedLog,
    partition,
)

TIP = partition()


def rolled(base: int, timestamp_ms: int) -> RolledSegment:
    return RolledSegment(
        base_offset=base, end_offset=base + 99, size_bytes=10, max_timestamp_ms=timestamp_ms
    )


@pytest.mark.parametrize(
    ("highest", "expected"),
    [
        (-1, CopyLag(segments=3, size_bytes=30, age_ms=900)),
        (99, CopyLag(segments=2, size_bytes=20, age_ms=800)),
        (150, CopyLag(segments=2, size_bytes=20, age_ms=800)),
        (199, CopyLag(segments=1, size_bytes=10, age_ms=0)),
        (299, CopyLag()),
    ],
)
def test_lag_is_what_is_rolled_and_not_remote(highest: int, expected: CopyLag) -> None:
    """The oldest one's age goes by its newest record; an unknown time has no age."""
    segments = [rolled(0, 100), rolled(100, 200), rolled(200, -1)]
    assert copy_lag(segments, highest, now_ms=1000) == expected


def registered(config: TopicConfig) -> RegisteredPartition:
    log = SimulatedLog(TIP)
    log.roll(2)
    work = PartitionWork(topic_id_partition=TIP)
    work.observed = log.describe(LogQuery(topic_id_partition=TIP, max_segments=10))
    return RegisteredPartition(
        topic_id_partition=TIP, leader_epoch=0, config=config, work=work, leader_broker_id=1
    )


def test_nothing_lags_where_nothing_is_to_be_copied() -> None:
    """KIP-950: disabling copies resets the lag."""
    assert lag_of(registered(TopicConfig()), START_MS).segments == 2
    assert lag_of(registered(TopicConfig(remote_log_copy_disable=True)), START_MS) == CopyLag()
    assert lag_of(registered(TopicConfig(remote_storage_enable=False)), START_MS) == CopyLag()


def test_offsets_are_unknown_until_the_log_was_seen() -> None:
    partition_ = registered(TopicConfig())
    partition_.work.observed = None
    view = view_of(partition_, [], pauses=(), now_ms=0)
    assert (view.log_start_offset, view.log_end_offset, view.highest_remote_offset) == (-1, -1, -1)


def test_the_passing_of_time_is_no_change() -> None:
    partition_ = registered(TopicConfig())
    early = view_of(partition_, [], pauses=(), now_ms=START_MS)
    late = view_of(partition_, [], pauses=(), now_ms=START_MS + 5000)
    assert early != late
    assert early.timeless() == late.timeless()


@pytest.mark.parametrize("timestamp_ms", [-1, START_MS + 10**9])
async def test_the_age_of_the_lag_rises_whatever_times_the_records_have(timestamp_ms: int) -> None:
    """A producer's clock may be wrong, or say nothing: a segment that waits is still seen to wait."""
    clock = HastyClock()
    registry = Registry(lease_ms=10**9, clock=clock)
    registry.register(1, "one", "leader")
    registry.lead(1, [PartitionRole(topic_id_partition=TIP, leader_epoch=0, config=TopicConfig())])
    broker = SimulatedBroker()
    log = broker.add(SimulatedLog(TIP))
    observer = LogObserver(registry, SimulatedBrokers(leader=broker), clock=clock)
    log.roll(1, timestamp_ms=timestamp_ms)
    for _ in range(3):
        await observer.observe()
        await clock.sleep(60)
    partition_ = registry.require(TIP)
    assert lag_of(partition_, clock.now_ms()).age_ms == 180_000
    partition_.work.copied_offset = 99
    assert lag_of(partition_, clock.now_ms()) == CopyLag()
    log.roll(1, timestamp_ms=timestamp_ms)
    await observer.observe()
    assert lag_of(partition_, clock.now_ms()).age_ms == 0


@pytest.mark.parametrize("told", [-1, 129_999], ids=["nothing remote", "what the broker knows"])
async def test_lag_is_all_of_it_after_a_long_outage_and_before_metadata_was_asked(
    told: int,
) -> None:
    """More segments than one answer lists, and a manager that started during the outage."""
    clock = HastyClock()
    registry = Registry(lease_ms=10**9, clock=clock)
    registry.register(1, "one", "leader")
    registry.lead(1, [PartitionRole(topic_id_partition=TIP, leader_epoch=0, config=TopicConfig())])
    broker = SimulatedBroker()
    log = broker.add(SimulatedLog(TIP))
    log.roll(2500, size_bytes=10)
    log.highest_remote_offset = told
    observer = LogObserver(registry, SimulatedBrokers(leader=broker), clock=clock)
    partition_ = registry.require(TIP)

    await observer.observe()
    lag = lag_of(partition_, clock.now_ms())
    waiting = 2500 - (told + 1) // 100
    assert (lag.segments, lag.size_bytes) == (waiting, 10 * waiting)

    partition_.work.copied_offset = log.highest_remote_offset = log.log_end_offset - 1
    await observer.observe()
    assert lag_of(partition_, clock.now_ms()) == CopyLag()


async def test_a_broker_that_does_not_answer_keeps_its_last_state_and_hides_no_other() -> None:
    clock = HastyClock()
    registry = Registry(lease_ms=10**6, clock=clock)
    brokers = {name: SimulatedBroker() for name in ("one", "two")}
    tips = [partition(number=number) for number in range(2)]
    for broker_id, (name, broker) in enumerate(brokers.items()):
        registry.register(broker_id, name, name)
        broker.add(SimulatedLog(tips[broker_id])).roll(1)
        role = PartitionRole(
            topic_id_partition=tips[broker_id], leader_epoch=0, config=TopicConfig()
        )
        registry.lead(broker_id, [role])
    observer = LogObserver(registry, SimulatedBrokers(**brokers), clock=clock)
    await observer.observe()
    for broker in brokers.values():
        next(iter(broker.logs.values())).roll(1)
    brokers["one"].faults.inject("describe_logs", Fault())
    with pytest.raises(Exception, match="injected fault"):
        await observer.observe()
    lags = [lag_of(registry.require(tip), START_MS).segments for tip in tips]
    assert lags == [1, 2]
