"""DescribeLogDirs: the request that is asked when something is wrong with a disk."""

from pathlib import Path

from aquifer_broker.protocol.versions import ApiKey
from fixtures.broker_node import StartBroker
from fixtures.kafka_wire import KafkaWire
from fixtures.wire_topic import WireTopic
from kio.schema.errors import ErrorCode


async def test_a_log_dir_that_vanished_is_named_and_the_others_are_described(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    node = await start_broker(1, log_dirs=f"{good},{bad}")
    async with KafkaWire(node.port("PLAINTEXT")) as wire:
        await WireTopic.create(wire)
        away = bad.rename(tmp_path / "away")
        try:
            answer = await wire.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})
        finally:
            away.rename(bad)
    told = {each.log_dir: (each.error_code, each.total_bytes > 0) for each in answer.results}
    assert told == {
        str(good): (ErrorCode.none, True),
        str(bad): (ErrorCode.kafka_storage_error, False),
    }
