"""The object store hangs instead of failing: cold readers are told within their wait, and go on when it does."""

import asyncio
import time
from typing import Final

import pytest
from fixtures.kafka_traffic import assert_same, consume, produce, records_of
from fixtures.polling import eventually
from fixtures.suite import CHAOS_GROUP, RunningSuite
from fixtures.tiered_topic import MakeTopic
from kio.schema.errors import ErrorCode

pytestmark = pytest.mark.xdist_group(CHAOS_GROUP)

READ_ENDS_S: Final = 25.0
"""A read of the broker gives up after 30 s; a fetch of half a second must not wait for that."""


async def test_readers_of_a_store_that_hangs_are_told_within_their_wait(
    chaos_suite: RunningSuite, chaos_topics: MakeTopic
) -> None:
    """KAFKA_STORAGE_ERROR with every fetch once reads have been silent for long, until they are answered again (SR-19)."""
    topic = await chaos_topics()
    acked = await asyncio.to_thread(produce, chaos_suite.bootstrap, topic.name, records_of(300))
    await topic.until_cold()

    async def told() -> bool:
        return (await topic.fetch(0))[0] is ErrorCode.kafka_storage_error

    with chaos_suite.paused("s3"):
        await eventually(told, timeout_s=READ_ENDS_S)
        for offset in (0, 0, 1, 60, 0):
            begun = time.monotonic()
            assert await topic.fetch(offset) == (ErrorCode.kafka_storage_error, 0)
            assert time.monotonic() - begun < READ_ENDS_S
    await chaos_suite.wait_ready("s3")

    assert_same(
        await asyncio.to_thread(consume, chaos_suite.bootstrap, topic.name, len(acked)), acked
    )

    async def answered() -> bool:
        error, size_bytes = await topic.fetch(0)
        return error is ErrorCode.none and size_bytes > 0

    await eventually(answered, timeout_s=60)
