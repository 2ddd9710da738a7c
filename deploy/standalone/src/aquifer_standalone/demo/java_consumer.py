"""Reads a topic with Kafka's own console consumer, and makes the digests of what it printed."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from aquifer_standalone.demo.digest import PartitionDigest
from aquifer_standalone.demo.traffic import Outcome
from aquifer_standalone.kafka.tools import KafkaTools

_FIELDS: Final = ("timestamp", "partition", "offset", "key")
_TIMEOUT_S: Final = 300.0


async def consume_with_java(
    tools: KafkaTools, topic: str, until: Mapping[int, int], scratch: Path
) -> Outcome:
    """Consumes from offset 0 up to the log end offsets of all partitions.

    Args:
        until: partition -> log end offset.
        scratch: a file for what it prints.

    Raises:
        UnavailableError: the consumer failed.
        TimeoutError: it did not end in time.
    """
    started = time.monotonic()
    with scratch.open("wb") as printed:
        await tools.console_consumer(
            topic, sum(until.values()), shown=_FIELDS, timeout_s=_TIMEOUT_S, output=printed
        )
    seconds = time.monotonic() - started
    digests = {partition: PartitionDigest() for partition in until}
    for partition, offset, timestamp_ms, key, value in _records(scratch):
        digests[partition].add(offset, timestamp_ms, key, value)
    return Outcome(digests=digests, seconds=seconds)


def _records(printed: Path) -> Iterator[tuple[int, int, int, bytes, bytes]]:
    """Lines like `CreateTime:1700000000000 Partition:0 Offset:7 key value`, with tabs between."""
    with printed.open("rb") as lines:
        for line in lines:
            timestamp, partition, offset, key, value = line.removesuffix(b"\n").split(b"\t", 4)
            yield _number(partition), _number(offset), _number(timestamp), key, value


def _number(field: bytes) -> int:
    return int(field.partition(b":")[2])
