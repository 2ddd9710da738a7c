"""Several segments of one partition on their way at once, committed in offset order (SR-16, SR-22, K-3.2)."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from aquifer_core.errors import AquiferError
from aquifer_core.ports import Clock
from aquifer_core.segment import RemoteLogSegmentMetadata

from aquifer_manager.domain.assignment import Assignment
from aquifer_manager.domain.copy_candidates import copy_metadata
from aquifer_manager.domain.copy_turns import CopyTurns
from aquifer_manager.domain.leader_log import LeaderLogs
from aquifer_manager.domain.offset_constraints import FiveOffsets, check_offsets
from aquifer_manager.domain.ports import LogDescription, RolledSegment, Telemetry
from aquifer_manager.domain.registry import Registry
from aquifer_manager.domain.segment_copy import SegmentCopy
from aquifer_manager.domain.tasks import (
    ActionKind,
    Deferral,
    TaskAction,
    TaskKey,
    TaskOutcome,
    TaskType,
)
from aquifer_manager.domain.upload_slots import Place, UploadSlots

__all__ = ["CopyParts", "CopyRun"]

logger = structlog.get_logger(__name__)

_SHORT_WAIT_S: Final = 0.1
_TELL_INTERVAL_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyParts:
    """What copies are made with.

    Attributes:
        registry: says for whom to work.
        logs: describes leaders' logs, and tells brokers how far remote storage reaches.
        copies: copies single segments.
        turns: when the quota lets a copy begin.
        uploads: places of each broker.
        clock: wall clock.
        telemetry: spans and counters.
        at_once: uploads of one partition at the same time.
    """

    registry: Registry
    logs: LeaderLogs
    copies: SegmentCopy
    turns: CopyTurns
    uploads: UploadSlots
    clock: Clock
    telemetry: Telemetry
    at_once: int


class _Flight:
    """A segment on its way: uploaded, then committed when the one before it is."""

    def __init__(
        self, segment: RemoteLogSegmentMetadata, before: "_Flight | None", place: Place
    ) -> None:
        self.segment = segment
        self.before = before
        self.place = place
        self.uploading = True
        self.committed = False
        self.unknown = False
        self.error: Exception | None = None
        self.ended = asyncio.Event()
        """Committed, given up, or left with an unknown end to the next run."""

    def landed(self) -> None:
        """The upload is over; its place is free."""
        self.uploading = False
        self.place.leave()

    async def wait(self) -> None:
        """Waits until the one before has ended."""
        if self.before is not None:
            await self.before.ended.wait()


class CopyRun:
    """One run over segments of a partition, oldest first.

    Uploads overlap; commits do not, and follow the order of offsets, so what is finished in metadata never has a hole. When a copy
    fails no other begins. Older ones are committed; newer ones end their uploads and are taken back, or, when nobody knows whether
    the failed one is finished, kept with it for the next run to commit in turn. The run fails with the error of the oldest, and the
    next one tries one at a time until one succeeds.
    """

    def __init__(self, parts: CopyParts, assignment: Assignment, log: LogDescription) -> None:
        """Prepares.

        Args:
            parts: what copies are made with.
            assignment: for whom.
            log: of the leader.
        """
        self._parts = parts
        self._assignment = assignment
        self._work = assignment.work
        self._log = log
        self._flights: list[_Flight] = []
        self._changed = asyncio.Event()
        self._failure: Exception | None = None
        self._turn_at_s: float | None = None
        self._told = float("-inf")
        self._is_own_place_taken = False

    async def copy(self, candidates: Sequence[RolledSegment]) -> TaskOutcome:
        """Copies what may be copied now; deferred where the quota says that a copy must wait.

        Raises:
            AquiferError: a copy failed; older ones are finished, newer ones are not.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for candidate in candidates:
                    place = await self._place_for(candidate)
                    if place is None or not self._has_begun(group, candidate, place):
                        break
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        await self._end()
        actions = tuple(_copied(flight) for flight in self._flights if flight.committed)
        if self._turn_at_s is None:
            return TaskOutcome(actions=actions)
        wait_s = max(self._turn_at_s - self._parts.clock.monotonic_s(), 0.0)
        return TaskOutcome(actions=actions, deferred=Deferral.COPY_QUOTA, retry_in_s=wait_s)

    async def _place_for(self, candidate: RolledSegment) -> Place | None:
        """Waits until the next copy may begin; None: none is to begin any more."""
        while True:
            self._changed.clear()
            if self._failure or not self._parts.registry.is_current(self._assignment):
                return None
            place = self._place() if self._is_window_open() else None
            if place is not None:
                return place if await self._is_turn(candidate, place) else None
            await self._changed.wait()

    def _is_window_open(self) -> bool:
        """Whether one more may be on its way: so many uploads, and as many again that wait for their commits."""
        open_flights = sum(not flight.ended.is_set() for flight in self._flights)
        if self._work.probing:
            return not open_flights
        uploading = sum(flight.uploading for flight in self._flights)
        at_once = self._parts.at_once
        return uploading < at_once and open_flights < 2 * at_once

    def _place(self) -> Place | None:
        """The run's own place, or a further one if there is one to spare."""
        if self._is_own_place_taken:
            return self._parts.uploads.further_place(self._assignment.address)
        self._is_own_place_taken = True
        return Place(self._leave_own_place)

    def _leave_own_place(self) -> None:
        self._is_own_place_taken = False

    async def _is_turn(self, candidate: RolledSegment, place: Place) -> bool:
        """Whether the quota lets the copy begin. A long wait is not waited for here: others may use this run's places."""
        key = TaskKey(self._assignment.topic_id_partition, TaskType.COPY)
        turns, clock = self._parts.turns, self._parts.clock
        try:
            while 0 < (wait_s := turns.wait_s(key, candidate.size_bytes)) <= _SHORT_WAIT_S:
                await clock.sleep(wait_s)
        except BaseException:
            place.leave()
            raise
        if wait_s <= 0:
            return True
        place.leave()
        self._turn_at_s = clock.monotonic_s() + wait_s
        return False

    def _has_begun(self, group: asyncio.TaskGroup, candidate: RolledSegment, place: Place) -> bool:
        """Begins a copy; False when the offsets contradict each other."""
        try:
            segment = self._checked(candidate)
        except Exception as error:
            place.leave()
            self._failure = self._failure or error
            return False
        before = self._flights[-1] if self._flights else None
        flight = _Flight(segment, before, place)
        task = group.create_task(self._fly(flight), name=f"copy {segment.segment_id.id}")
        # A task that is cancelled before it began does nothing at all.
        task.add_done_callback(lambda _: self._has_ended(flight))
        self._flights.append(flight)
        return True

    def _checked(self, candidate: RolledSegment) -> RemoteLogSegmentMetadata:
        work = self._work
        offsets = FiveOffsets.of(
            self._log, -1 if work.copied_offset is None else work.copied_offset
        )
        check_offsets(offsets, work, "before_copy")
        check_offsets(offsets.copied_up_to(candidate.end_offset), work, "after_copy")
        broker_id, now_ms = self._assignment.broker_id, self._parts.clock.now_ms()
        return copy_metadata(self._log, candidate, broker_id=broker_id, now_ms=now_ms)

    async def _fly(self, flight: _Flight) -> None:
        segment, tip = flight.segment, self._assignment.topic_id_partition
        attributes: dict[str, int | str] = {
            "segment_id": str(segment.segment_id.id),
            "start_offset": segment.start_offset,
            "end_offset": segment.end_offset,
            "bytes": segment.segment_size_bytes,
        }
        self._parts.telemetry.count("copy.requests", 1, tip.topic)
        try:
            with self._parts.telemetry.span("copy segment", tip, attributes):
                await self._copy(flight)
        except Exception as error:
            flight.error = error
            self._failed(flight, error)

    async def _copy(self, flight: _Flight) -> None:
        parts, work = self._parts, self._work
        broker = parts.logs.broker(self._assignment)
        stored = await parts.copies.store(self._assignment, broker, flight.segment)
        flight.landed()
        self._changed.set()
        try:
            await flight.wait()
        except BaseException:
            parts.copies.leave(work, stored)
            raise
        before = flight.before
        if before is not None and not before.committed:
            flight.unknown = before.unknown
            await parts.copies.give_up(work, stored, keep=before.unknown)
            return
        await parts.copies.commit(work, stored)
        flight.committed = True
        work.probing = work.probing and self._failure is not None
        self._has_ended(flight)
        topic = self._assignment.topic_id_partition.topic
        parts.telemetry.count("copy.bytes", flight.segment.segment_size_bytes, topic)
        if parts.clock.monotonic_s() - work.told_s >= _TELL_INTERVAL_S:
            await self._tell()

    def _has_ended(self, flight: _Flight) -> None:
        flight.landed()
        flight.ended.set()
        self._changed.set()

    def _failed(self, flight: _Flight, error: Exception) -> None:
        self._failure = self._failure or error
        if not flight.committed:
            flight.unknown = flight.segment.segment_id.id in self._work.uncommitted
            self._work.probing = True

    async def _tell(self) -> None:
        """Tells the broker how far remote storage reaches by now."""
        copied = max(each.segment.end_offset for each in self._flights if each.committed)
        if copied > self._told and self._parts.registry.is_current(self._assignment):
            self._work.told_s = self._parts.clock.monotonic_s()
            await self._parts.logs.tell_highest(self._assignment, copied)
            self._told = max(self._told, copied)

    async def _end(self) -> None:
        """Tells the broker what is committed.

        Raises:
            Exception: of the oldest copy that failed.
        """
        failures = [each.error for each in self._flights if each.error is not None]
        failure = failures[0] if failures else self._failure
        try:
            if any(flight.committed for flight in self._flights):
                await self._tell()
        except AquiferError as error:
            failure = failure or error
            logger.warning(
                "broker_not_told", partition=str(self._work.topic_id_partition), error=str(error)
            )
        if failure is not None:
            raise failure


def _copied(flight: _Flight) -> TaskAction:
    return TaskAction(segment=flight.segment, action=ActionKind.COPIED, reason="ROLLED")
