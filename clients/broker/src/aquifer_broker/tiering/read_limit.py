"""How many remote reads may be under way at once beside producers and readers of local records (AIMD)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["CHEAP_BYTES_PER_S", "ReadLimit", "Window"]

_PERCENT: Final = 90
_CALM_WINDOWS: Final = 5
_FORGET_AFTER_S: Final = 60.0
CHEAP_BYTES_PER_S: Final = 16 << 20
"""Reads that bring less cost next to no processor time."""

_SMOOTHING: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What was seen for a short time.

    Attributes:
        seconds: How long it was.
        late_s: How late the event loop woke up, each time.
        most_reads: The most places for reads that were in use at once.
        brought_bytes: What remote reads brought.
    """

    seconds: float
    late_s: Sequence[float]
    most_reads: int
    brought_bytes: int

    @property
    def delay_s(self) -> float:
        """What nine of ten wake-ups did not exceed."""
        ordered = sorted(self.late_s)
        return ordered[len(ordered) * _PERCENT // 100] if ordered else 0.0


class ReadLimit:
    """A limit that is halved while the event loop is late and raised by one a second while it is not.

    Halving begins at what is in use, as nothing else would help soon. Reads that bring less than 16 MiB/s cost next to no processor time,
    so lateness beside them has other causes: the limit is then raised in each window, and readers of a slow or distant store are not
    held up. It is kept for a minute without hot traffic or reads, for those that come and go.

    Attributes:
        value: Reads that may be under way beside hot traffic.
    """

    def __init__(
        self, *, most: int, target_s: float, cheap_bytes_per_s: float = CHEAP_BYTES_PER_S
    ) -> None:
        """Prepares.

        Args:
            most: Reads at once when nothing is late, at least 1.
            target_s: How late nine of ten wake-ups may be.
            cheap_bytes_per_s: See `CHEAP_BYTES_PER_S`.
        """
        self._cheap_bytes_per_s = cheap_bytes_per_s
        self.value = most
        self._most = most
        self._target_s = target_s
        self._calm_windows = 0
        self._quiet_s = 0.0
        self._bytes_per_s = 0.0

    @property
    def lowered(self) -> bool:
        """Whether there could be more reads at once if nothing had been late."""
        return self.value < self._most

    def seen(self, window: Window) -> None:
        """There were reads beside hot traffic."""
        self._quiet_s = 0.0
        rate = window.brought_bytes / window.seconds
        self._bytes_per_s += _SMOOTHING * (rate - self._bytes_per_s)
        cheap = self._bytes_per_s < self._cheap_bytes_per_s
        if window.delay_s > self._target_s and window.most_reads and not cheap:
            self.value = max(1, min(self.value, window.most_reads) // 2)
            self._calm_windows = 0
            return
        self._calm_windows += 1
        if cheap or self._calm_windows >= _CALM_WINDOWS:
            self.value = min(self._most, self.value + 1)
            self._calm_windows = 0

    def quiet(self, seconds: float) -> None:
        """So much time without hot traffic, or without reads."""
        self._quiet_s += seconds
        if self._quiet_s >= _FORGET_AFTER_S:
            self.value = self._most
