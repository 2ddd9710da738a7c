"""What counts as hot: producing, and reading what is local."""

from collections.abc import AsyncIterator, Callable

import pytest
from aquifer_broker.app import BrokerNode
from aquifer_broker.handlers.hot_traffic import HotTraffic
from fixtures.broker_logs import client_batch
from fixtures.kafka_wire import KafkaWire
from fixtures.wire_topic import WireTopic


@pytest.fixture
async def topic(broker: BrokerNode) -> AsyncIterator[WireTopic]:
    async with KafkaWire(broker.port("PLAINTEXT")) as wire:
        yield await WireTopic.create(wire)


@pytest.fixture
def is_hot(broker: BrokerNode) -> Callable[[], bool]:
    """Whether there was hot traffic since the last look."""
    now_s = 0.0

    def look() -> bool:
        nonlocal now_s
        seen = broker.services.hot.is_within(1)
        now_s += 10
        return seen

    broker.services.hot = HotTraffic(lambda: now_s)
    return look


async def test_producing_and_reading_local_records_is_hot_and_waiting_for_some_is_not(
    topic: WireTopic, is_hot: Callable[[], bool]
) -> None:
    assert not is_hot()
    await topic.produce(client_batch())
    assert is_hot()
    assert not is_hot()
    assert (await topic.fetch(0)).records
    assert is_hot()
    assert not (await topic.fetch(1)).records
    assert not is_hot()
