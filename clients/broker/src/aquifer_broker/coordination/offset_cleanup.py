"""Deletes offsets that nobody needs: of idle groups after `offsets.retention.minutes`, and of deleted topics."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import structlog
from aquifer_core.ports import Clock

from aquifer_broker.cluster.ports import GroupOffset
from aquifer_broker.cluster.view import ClusterChange, ClusterView
from aquifer_broker.coordination.group_coordinator import GroupCoordinator
from aquifer_broker.coordination.group_placement import GroupRefusedError, Moved
from aquifer_broker.coordination.group_values import GroupState

__all__ = ["OffsetCleanup"]

logger = structlog.get_logger(__name__)


class _Empty(NamedTuple):
    """A group without members: how many had ever come, and since when it was seen so."""

    visits: int
    since_s: float


class OffsetCleanup:
    """One pass over the groups that this broker coordinates, to be repeated by a supervised loop.

    A group's offsets go when none of them was committed within the retention and the group was empty for as long (KIP-211).
    A consumer of a quiet topic commits nothing, so age alone says little. When a group became empty is known here only: after
    a restart, or when another broker coordinated it before, the time begins anew.
    """

    def __init__(
        self,
        *,
        groups: GroupCoordinator,
        view: ClusterView,
        clock: Clock,
        retention_ms: int,
    ) -> None:
        self._groups = groups
        self._view = view
        self._clock = clock
        self._retention_ms = retention_ms
        self._deleted_topics: dict[str, int] = {}
        self._empty: dict[str, _Empty] = {}
        view.on_change(self._note_deleted)
        groups.on_moved(self._note_moved)

    def on_deleted_topics(self, wake: Callable[[], None]) -> None:
        """Calls `wake` when topics were deleted, so that their offsets go at once."""
        self._view.on_change(lambda change: wake() if change.deleted_topics else None)

    async def run(self) -> None:
        """One pass.

        Raises:
            UnavailableError: the metadata service does not answer; what was not cleaned is, next time.
        """
        deleted_topics = dict(self._deleted_topics)
        stored = await self._groups.offsets.list_groups()
        self._look_for_empty(stored)
        for group_id in stored:
            with suppress(GroupRefusedError):
                await self._clean(group_id, deleted_topics)
        for topic, deleted_ms in deleted_topics.items():
            if self._deleted_topics.get(topic) == deleted_ms:
                del self._deleted_topics[topic]

    def _look_for_empty(self, stored: Sequence[str]) -> None:
        """Notes since when groups are empty, and forgets those that have no offsets either."""
        now_s = self._clock.monotonic_s()
        with_offsets = {each for each in stored if not self._groups.refusal(each)}
        before, self._empty = self._empty, {}
        for group in self._groups.groups():
            if group.group_id not in with_offsets:
                self._groups.forget_empty(group.group_id)
        for group_id in with_offsets:
            group_here = self._groups.get(group_id)
            if group_here is not None and group_here.state is not GroupState.EMPTY:
                continue
            visits = group_here.members.added if group_here is not None else 0
            known = before.get(group_id)
            is_same = known is not None and known.visits == visits
            self._empty[group_id] = known if known and is_same else _Empty(visits, now_s)

    async def _clean(self, group_id: str, deleted_topics: dict[str, int]) -> None:
        self._groups.coordination(group_id)
        async with self._groups.writing(group_id):
            coordination = self._groups.coordination(group_id)
            offsets = await self._groups.offsets.fetch_offsets(group_id, None)
            if self._is_expired(group_id, offsets):
                logger.info("group_expired", group=group_id, offsets=len(offsets))
                await self._groups.delete_offsets(group_id, None, coordination)
                self._groups.forget_empty(group_id)
                return
            # A topic may exist again under its name, with offsets committed since.
            gone = [
                (each.topic, each.partition)
                for each in offsets
                if each.commit_timestamp_ms <= deleted_topics.get(each.topic, -1)
            ]
            if gone:
                logger.info("offsets_of_deleted_topics_removed", group=group_id, offsets=len(gone))
                await self._groups.delete_offsets(group_id, gone, coordination)

    def _is_expired(self, group_id: str, offsets: Sequence[GroupOffset]) -> bool:
        group = self._groups.get(group_id)
        empty = self._empty.get(group_id)
        if not offsets or empty is None:
            return False
        if group is not None and (
            group.state is not GroupState.EMPTY or group.members.added != empty.visits
        ):
            return False
        # By a clock that is never set, so that all groups do not expire when the other one is.
        if (self._clock.monotonic_s() - empty.since_s) * 1000 <= self._retention_ms:
            return False
        newest_ms = max(each.commit_timestamp_ms for each in offsets)
        return newest_ms + self._retention_ms < self._clock.now_ms()

    def _note_deleted(self, change: ClusterChange) -> None:
        now_ms = self._clock.now_ms()
        self._deleted_topics.update((topic.name, now_ms) for topic in change.deleted_topics)

    def _note_moved(self, moved: Moved) -> None:
        """What another broker coordinates, or did for a moment, may have had members there."""
        for group_id in tuple(self._empty):
            if moved(group_id):
                del self._empty[group_id]
