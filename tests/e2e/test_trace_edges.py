"""A copy and a cold read are one trace each, from the process that began it to the database and to the object store."""

import asyncio
from collections.abc import Iterator

import pytest
from aquifer_standalone.trace_collector import Span, Trace
from fixtures.kafka_traffic import consume, produce, records_of
from fixtures.suite import E2E_GROUP, RunningSuite
from fixtures.tiered_topic import MakeTopic

pytestmark = pytest.mark.xdist_group(E2E_GROUP)

BROKER, MANAGER = "aquifer-broker", "aquifer-manager"
METADATA, STORAGE = "aquifer-metadata", "aquifer-storage"
SQL = "db.system.name"


def paths(trace: Trace) -> Iterator[list[Span]]:
    """Every span with its ancestors, outermost first."""
    above: list[Span] = []
    for depth, span in trace.walk():
        above[depth:] = [span]
        yield list(above)


def chains(trace: Trace) -> set[tuple[str, ...]]:
    """Services that called each other, ending with `SQL` and `S3` where these were called."""
    found = set()
    for path in paths(trace):
        services: list[str] = []
        for span in path:
            if not services or services[-1] != span.service:
                services.append(span.service)
        last = path[-1]
        if SQL in last.attributes:
            services.append("SQL")
        elif last.name.startswith("s3."):
            services.append("S3")
        found.add(tuple(services))
    return found


def is_whole(trace: Trace, topic: str, root: str) -> bool:
    """Whether the trace has one root, with that name, and reads or writes objects of the topic."""
    keys = [str(span.attributes.get("aquifer.object_key", "")) for span in trace.spans.values()]
    roots = [span.name.rpartition("/")[2] for span in trace.roots()]
    return roots == [root] and any(topic in key for key in keys)


async def test_a_copy_is_one_trace(suite: RunningSuite, topics: MakeTopic) -> None:
    """Manager -> metadata -> SQL, and manager -> broker -> storage -> S3; bytes do not pass through the manager (SR-16)."""
    wanted = {
        (MANAGER, METADATA, "SQL"),
        (MANAGER, BROKER, STORAGE, "S3"),
    }
    topic = await topics()
    await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(200))
    await topic.until_cold()
    trace = await suite.wait_for_trace(
        lambda trace: is_whole(trace, topic.name, "copy") and wanted <= chains(trace)
    )
    assert trace.roots()[0].service == MANAGER
    assert (MANAGER, STORAGE, "S3") not in chains(trace)
    failed = [span.name for span in trace.spans.values() if not span.ok]
    assert not failed
    stored: dict[str, list[str]] = {}
    for span in sorted(trace.spans.values(), key=lambda span: span.start_ns):
        if span.name == "s3.put_object":
            segment, _, suffix = str(span.attributes["aquifer.object_key"]).rpartition(".")
            stored.setdefault(segment, []).append(suffix)
    # The manifest last, of each segment: without it nothing counts as copied. Several are copied at once.
    assert stored
    assert all(suffixes == ["log", "manifest"] for suffixes in stored.values()), stored


async def test_a_cold_read_is_one_trace(suite: RunningSuite, topics: MakeTopic) -> None:
    """Broker -> manager -> metadata -> SQL to plan it, broker -> storage -> S3 for the records (SR-23)."""
    wanted = {(BROKER, MANAGER, METADATA, "SQL"), (BROKER, STORAGE, "S3")}
    topic = await topics()
    await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(200))
    offsets = await topic.until_cold()
    await asyncio.to_thread(consume, suite.bootstrap, topic.name, offsets.end)
    trace = await suite.wait_for_trace(
        lambda trace: is_whole(trace, topic.name, "remote read") and wanted <= chains(trace)
    )
    assert trace.roots()[0].service == BROKER
    # No transaction was aborted: there is no index to plan with.
    assert (BROKER, MANAGER, STORAGE, "S3") not in chains(trace)
    assert not [span.name for span in trace.spans.values() if not span.ok]
    # The chunk table of a small segment is in its metadata: its first read is one request, as is that of the next one, read ahead.
    reads = [
        str(span.attributes["aquifer.object_key"])
        for span in trace.spans.values()
        if span.attributes.get("aquifer.object_key")
    ]
    assert reads
    assert all(key.endswith(".log") for key in reads), reads
    assert len(set(reads)) == len(reads)
