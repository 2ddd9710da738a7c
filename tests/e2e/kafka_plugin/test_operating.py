"""Apache Kafka with the plugin, as an operator sees it: the `aquifer` command and traces."""

import asyncio

import pytest
from aquifer_standalone.trace_collector import Trace
from fixtures.admin_command import AdminCommand
from fixtures.kafka_cluster import KAFKA_GROUP, KafkaSuite, MakeKafkaTopic
from fixtures.kafka_traffic import consume, records_of

pytestmark = [pytest.mark.xdist_group(KAFKA_GROUP), pytest.mark.timeout(900)]


def reaches_the_store(trace: Trace, method: str) -> bool:
    """Whether a trace begins in the plugin and ends in the object store, by way of that RPC."""
    roots = trace.roots()
    return (
        len(roots) == 1
        and roots[0].service == "aquifer-kafka-plugin"
        and any(span.name.endswith(f"/{method}") for span in trace.spans.values())
        and any(span.name.startswith("s3.") for span in trace.spans.values())
    )


async def test_segments_of_a_kafka_topic_are_listed_and_verified(
    kafka_suite: KafkaSuite, kafka_topics: MakeKafkaTopic
) -> None:
    """The cluster metadata does not know the topic; the store does."""
    topic = await kafka_topics(assignment=((1,), (2,)))
    for partition in (0, 1):
        await topic.produce(records_of(3), partition)
        await topic.until_offsets(partition, local_start=2, tiered=1)
    stack = kafka_suite.stack
    admin = AdminCommand(
        metadata=stack.address("metadata"), manager="127.0.0.1:1", storage=stack.address("storage")
    )
    listed = await admin.json("segments", "list", topic.name)
    found = {(each["partition"], each["start_offset"]): each for each in listed["segments"]}
    assert found.keys() == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert found[0, 0]["broker_id"] == 1
    assert found[1, 0]["broker_id"] == 2
    verified = await admin.json("segments", "verify", "--topic", topic.name)
    assert verified["ok"]
    history = await admin.json(
        "segments", "history", found[0, 0]["segment_id"], "--topic", topic.name
    )
    assert [each["to_state"] for each in history["events"]] == [
        "COPY_SEGMENT_STARTED",
        "COPY_SEGMENT_FINISHED",
    ]


async def test_copies_and_reads_are_traced_from_the_plugin_to_the_store(
    kafka_suite: KafkaSuite, kafka_topics: MakeKafkaTopic
) -> None:
    topic = await kafka_topics()
    await topic.produce(records_of(3))
    await topic.until_cold()
    await asyncio.to_thread(consume, kafka_suite.bootstrap, topic.name, 3)
    for method in ("CopyLogSegmentData", "FetchLogSegment"):
        trace = await kafka_suite.wait_for_trace(
            lambda trace, method=method: reaches_the_store(trace, method), timeout_s=60
        )
        assert {"aquifer-kafka-plugin", "aquifer-storage"} <= trace.services()
