"""Tells a store that is slow from one that does not answer any more."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import structlog
from aquifer_core.errors import DeadlineExceededError, QuotaExceededError, UnavailableError
from aquifer_core.ids import TopicIdPartition

from aquifer_broker.tiering.fetch_paths import FetchedRecords, FetchPath
from aquifer_broker.tiering.remote_fetch import RemoteFetch

__all__ = ["ReadSilence", "WatchedFetchPath"]

logger = structlog.get_logger(__name__)

# What a read may end with although nobody has said anything of the records.
_NO_ANSWER: Final = (
    UnavailableError,
    DeadlineExceededError,
    QuotaExceededError,
    TimeoutError,
    asyncio.CancelledError,
)
_Key = TopicIdPartition | None


class ReadSilence:
    """Since when reads have brought nothing: those of each partition, and all together (key None).

    Silence begins with a read and ends only with an answer, be it that there are no records: a read that fails because nobody answered
    does not end it, so that the next one is not waited for in good faith again. A partition is remembered until it is answered.
    """

    def __init__(
        self, stalled_after_s: float, *, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._stalled_after_s = stalled_after_s
        self._now_s = now_s
        self._since_s: dict[_Key, float] = {}
        self._running: Counter[_Key] = Counter()

    def begun(self, topic_id_partition: TopicIdPartition) -> None:
        """A read was begun."""
        for key in (None, topic_id_partition):
            self._running[key] += 1
            self._since_s.setdefault(key, self._now_s())

    def ended(self, topic_id_partition: TopicIdPartition, error: BaseException | None) -> None:
        """A read has ended, with records or an error."""
        answered = not isinstance(error, _NO_ANSWER)
        if answered and self.is_stalled(topic_id_partition):
            logger.info("remote_reads_answered_again", partition=str(topic_id_partition))
        for key in (None, topic_id_partition):
            self._running[key] -= 1
            if self._running[key] > 0:
                if answered:
                    self._since_s[key] = self._now_s()
                continue
            del self._running[key]
            if answered:
                self._since_s.pop(key, None)

    def is_stalled(self, topic_id_partition: TopicIdPartition) -> bool:
        """Whether a reader of the partition is to be told that its records cannot be had now."""
        now_s = self._now_s()
        return any(
            now_s - self._since_s.get(key, now_s) >= self._stalled_after_s
            for key in (None, topic_id_partition)
        )


class WatchedFetchPath:
    """A path whose reads are watched for silence."""

    def __init__(self, path: FetchPath, silence: ReadSilence) -> None:
        self._path = path
        self._silence = silence

    async def fetch(self, request: RemoteFetch, deadline_s: float) -> FetchedRecords:
        """See `FetchPath`."""
        tip = request.topic_id_partition
        self._silence.begun(tip)
        try:
            fetched = await self._path.fetch(request, deadline_s)
        except BaseException as error:
            self._silence.ended(tip, error)
            raise
        self._silence.ended(tip, None)
        return fetched
