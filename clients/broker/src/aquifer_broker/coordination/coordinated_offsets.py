"""Offsets are written as long as this broker coordinates their group, and no longer."""

from collections.abc import Awaitable, Sequence
from typing import Final

from aquifer_core.errors import (
    ConcurrentUpdateError,
    ErrorReason,
    PreconditionError,
    UnavailableError,
)
from kio.schema.errors import ErrorCode

from aquifer_broker.cluster.ports import Coordination, GroupOffset, OffsetStore
from aquifer_broker.cluster.view import ClusterView
from aquifer_broker.coordination.group_placement import GroupRefusedError

__all__ = ["CoordinatedOffsets"]

_LOOK_S: Final = 5.0


class CoordinatedOffsets:
    """Writes that the metadata service refuses once another broker may have coordinated the group.

    Raises from all:
        GroupRefusedError: this broker's lease is over; nothing was written.
        UnavailableError, TimeoutError: the outcome is not known, or the brokers that have registered meanwhile were not seen in time.
    """

    def __init__(self, *, offsets: OffsetStore, view: ClusterView) -> None:
        self._offsets = offsets
        self._view = view

    async def commit(
        self, group_id: str, offsets: Sequence[GroupOffset], coordination: Coordination
    ) -> bool:
        """Stores all or none. False: brokers have registered since it was decided; it is to be decided again."""
        return await self._written(self._offsets.commit_offsets(group_id, offsets, coordination))

    async def delete(
        self,
        group_id: str,
        partitions: Sequence[tuple[str, int]] | None,
        coordination: Coordination,
    ) -> None:
        """Deletes some; None: the whole group. UnavailableError also when it is to be decided again."""
        if not await self._written(
            self._offsets.delete_offsets(group_id, partitions, coordination)
        ):
            raise UnavailableError("brokers have registered meanwhile: ask again")

    async def _written(self, write: Awaitable[None]) -> bool:
        try:
            await write
        except PreconditionError as error:
            if error.reason is ErrorReason.STALE_BROKER_EPOCH:
                raise GroupRefusedError(ErrorCode.not_coordinator) from error
            raise
        except ConcurrentUpdateError as error:
            await self._look_again(error)
            return False
        return True

    async def _look_again(self, error: ConcurrentUpdateError) -> None:
        version = error.metadata.get("clusterVersion")
        if version is None:
            raise UnavailableError(error.message) from error
        wanted = int(version)
        if not await self._view.wait_until(lambda: self._view.version >= wanted, _LOOK_S):
            raise TimeoutError(
                f"version {wanted} of the cluster was not seen within {_LOOK_S:g} s"
            ) from error
