"""Deletes offsets that nobody needs: of idle groups after `offsets.retention.minutes`, and of deleted topics."""

from collections.abc import Callable, Sequence

import structlog
from aquifer_core.ports import Clock

from aquifer_broker.cluster.ports import GroupOffset
from aquifer_broker.cluster.view import ClusterChange, ClusterView
from aquifer_broker.coordination.group_coordinator import GroupCoordinator
from aquifer_broker.coordination.group_values import GroupState

__all__ = ["OffsetCleanup"]

logger = structlog.get_logger(__name__)


class OffsetCleanup:
    """One pass over the groups that this broker coordinates, to be repeated by a supervised loop.

    An empty group's offsets go when none of them was committed within the retention (KIP-211, where the time begins when
    the group becomes empty; that is never later than its last commit by much, and survives a restart here).
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
        view.on_change(self._note_deleted)

    def on_deleted_topics(self, wake: Callable[[], None]) -> None:
        """Calls `wake` when topics were deleted, so that their offsets go at once."""
        self._view.on_change(lambda change: wake() if change.deleted_topics else None)

    async def run(self) -> None:
        """One pass.

        Raises:
            UnavailableError: the metadata service does not answer; what was not cleaned is, next time.
        """
        deleted_topics = dict(self._deleted_topics)
        for group_id in await self._groups.offsets.list_groups():
            if not self._groups.refusal(group_id):
                await self._clean(group_id, deleted_topics)
        for topic, deleted_ms in deleted_topics.items():
            if self._deleted_topics.get(topic) == deleted_ms:
                del self._deleted_topics[topic]

    async def _clean(self, group_id: str, deleted_topics: dict[str, int]) -> None:
        offsets = await self._groups.offsets.fetch_offsets(group_id, None)
        if self._is_expired(group_id, offsets):
            logger.info("group_expired", group=group_id, offsets=len(offsets))
            await self._groups.offsets.delete_offsets(group_id, None)
            return
        # A topic may exist again under its name, with offsets committed since.
        gone = [
            (each.topic, each.partition)
            for each in offsets
            if each.commit_timestamp_ms <= deleted_topics.get(each.topic, -1)
        ]
        if gone:
            logger.info("offsets_of_deleted_topics_removed", group=group_id, offsets=len(gone))
            await self._groups.offsets.delete_offsets(group_id, gone)

    def _is_expired(self, group_id: str, offsets: Sequence[GroupOffset]) -> bool:
        group = self._groups.get(group_id)
        if not offsets or (group is not None and group.state is not GroupState.EMPTY):
            return False
        newest_ms = max(each.commit_timestamp_ms for each in offsets)
        return newest_ms + self._retention_ms < self._clock.now_ms()

    def _note_deleted(self, change: ClusterChange) -> None:
        now_ms = self._clock.now_ms()
        self._deleted_topics.update((topic.name, now_ms) for topic in change.deleted_topics)
