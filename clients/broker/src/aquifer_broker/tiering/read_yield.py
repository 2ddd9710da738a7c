"""Remote reads give way to producers and readers of local records when the broker's event loop is late."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from aquifer_rpc import semconv
from aquifer_rpc.supervised import SupervisedLoop
from opentelemetry import metrics

from aquifer_broker.handlers.hot_traffic import HotTraffic
from aquifer_broker.tiering.read_limit import CHEAP_BYTES_PER_S, ReadLimit, Window
from aquifer_broker.tiering.read_places import ReadPlaces

__all__ = ["ReadYield"]

logger = structlog.get_logger(__name__)

_METER: Final = metrics.get_meter("aquifer_broker")
_LIMIT: Final = _METER.create_gauge(
    semconv.BROKER_READ_LIMIT.name,
    unit=semconv.BROKER_READ_LIMIT.unit,
    description=semconv.BROKER_READ_LIMIT.doc,
)
_DELAY: Final = _METER.create_gauge(
    semconv.BROKER_LOOP_DELAY.name,
    unit=semconv.BROKER_LOOP_DELAY.unit,
    description=semconv.BROKER_LOOP_DELAY.doc,
)

_PAUSE_S: Final = 0.005
_WINDOW_S: Final = 0.2
_IDLE_S: Final = 5.0
_HOT_FOR_S: Final = 1.0


async def _loop_delay_s() -> float:
    """Sleeps for 5 ms; how much later than that the event loop went on."""
    # The loop's own clock is that of the beginning of a pass.
    due_s = time.perf_counter() + _PAUSE_S
    await asyncio.sleep(_PAUSE_S)
    return max(0.0, time.perf_counter() - due_s)


class ReadYield:
    """Watches the event loop while remote reads are under way, and says how many of them there may be.

    Lateness is looked at only beside hot traffic; without it, or without remote reads, next to nothing is done.

    Attributes:
        places: For the reads.
        loop: The watch, to be entered.
    """

    def __init__(
        self,
        *,
        target_s: float,
        most_reads: int,
        hot: HotTraffic,
        delay_s: Callable[[], Awaitable[float]] = _loop_delay_s,
        cheap_bytes_per_s: float = CHEAP_BYTES_PER_S,
    ) -> None:
        """Prepares.

        Args:
            target_s: How late nine of ten wake-ups may be.
            most_reads: Reads at once when nothing is late.
            hot: What reads give way to.
            delay_s: Waits for a few ms and tells how late it woke up.
            cheap_bytes_per_s: Reads that bring less do not give way.
        """
        self._hot = hot
        self._delay_s = delay_s
        self._limit = ReadLimit(
            most=most_reads, target_s=target_s, cheap_bytes_per_s=cheap_bytes_per_s
        )
        self._brought_bytes = 0
        self._said_lowered = False
        self.places = ReadPlaces(lambda: self.limit, on_used=self._woken)
        self.loop = SupervisedLoop("remote read yield", self._watch, interval_s=_IDLE_S)

    @property
    def limit(self) -> float:
        """Reads that may be under way now; infinite without hot traffic."""
        return self._limit.value if self._hot.is_within(_HOT_FOR_S) else math.inf

    def brought(self, size_bytes: int) -> None:
        """A remote read brought so much."""
        self._brought_bytes += size_bytes

    def _woken(self) -> None:
        self.loop.wake()

    async def _watch(self) -> None:
        """One window; the next one follows it as long as there are reads."""
        if not self.places.most_used:
            self._limit.quiet(_IDLE_S)
            self._say()
            return
        hot = self._hot.is_within(_HOT_FOR_S)
        began_s = time.perf_counter()
        late_s = await self._delays_s() if hot else await asyncio.sleep(_WINDOW_S, ())
        took_s = time.perf_counter() - began_s
        brought_bytes, self._brought_bytes = self._brought_bytes, 0
        if hot:
            window = Window(
                seconds=took_s,
                late_s=late_s,
                most_reads=self.places.most_used,
                brought_bytes=brought_bytes,
            )
            _DELAY.set(window.delay_s)
            self._limit.seen(window)
        else:
            self._limit.quiet(took_s)
        self._say()
        self.places.reset_most_used()
        self.places.let_in()
        self.loop.wake()

    async def _delays_s(self) -> list[float]:
        until_s = time.perf_counter() + _WINDOW_S
        late_s: list[float] = []
        while time.perf_counter() < until_s:
            late_s.append(await self._delay_s())
        return late_s

    def _say(self) -> None:
        """The limit now, and a line when reads begin to give way or do not any more."""
        _LIMIT.set(self._limit.value)
        if self._limit.lowered != self._said_lowered:
            self._said_lowered = self._limit.lowered
            event = "remote_reads_give_way" if self._said_lowered else "remote_reads_unlimited"
            logger.info(event, limit=self._limit.value, waiting=self.places.waiting)
