"""Segments that a reader will come to, found with one question where metadata is able to answer it."""

from typing import Final

from aquifer_core.ports import Clock, RemoteLogMetadataManager
from aquifer_core.segment_run import RunsUnsupportedError, SegmentRun, SegmentRuns

from aquifer_manager.domain.fetch_plan import FetchRequest
from aquifer_manager.domain.segment_finder import SegmentFinder

__all__ = ["RunLookup"]

_ASK_AGAIN_S: Final = 60.0


class RunLookup:
    """Asks for runs. Nothing is remembered: that there is no transaction index holds only for whoever asked, see `AbortedTransactions`."""

    def __init__(
        self, metadata: RemoteLogMetadataManager, finder: SegmentFinder, *, clock: Clock
    ) -> None:
        self._runs = metadata if isinstance(metadata, SegmentRuns) else None
        self._finder = finder
        self._clock = clock
        self._unsupported_until_s = 0.0

    async def find(self, request: FetchRequest) -> SegmentRun | None:
        """What a reader will come to; None: metadata has no runs, or is down, and other questions must be asked."""
        run = await self._finder.run(request)
        if run is not None:
            return run
        runs, tip = self._runs, request.topic_id_partition
        if runs is None or self._clock.monotonic_s() < self._unsupported_until_s:
            return None
        try:
            return await self._finder.hint(
                tip,
                lambda: runs.segment_run(
                    tip, request.leader_epoch, request.fetch_offset, request.reach_bytes
                ),
            )
        except RunsUnsupportedError:  # services are upgraded in any order
            self._unsupported_until_s = self._clock.monotonic_s() + _ASK_AGAIN_S
            return None
