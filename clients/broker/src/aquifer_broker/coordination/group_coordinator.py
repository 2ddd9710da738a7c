"""Runs the groups that this broker coordinates: futures, timers and the offset store around the state machines."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import structlog
from kio.schema.errors import ErrorCode

from aquifer_broker.cluster.ports import Coordination, GroupOffset, OffsetStore
from aquifer_broker.cluster.view import BrokerInfo, ClusterView
from aquifer_broker.coordination.coordinated_offsets import CoordinatedOffsets
from aquifer_broker.coordination.group import Group
from aquifer_broker.coordination.group_placement import GroupPlacement, GroupRefusedError, Moved
from aquifer_broker.coordination.group_values import (
    GroupSettings,
    GroupState,
    JoinRequest,
    JoinResult,
    MemberIdentity,
    SyncRequest,
    SyncResult,
)
from aquifer_broker.coordination.offset_turns import OffsetTurns

__all__ = ["GroupCoordinator"]

logger = structlog.get_logger(__name__)

Result = TypeVar("Result")


class GroupCoordinator:
    """Consumer groups by rendezvous hash; offsets are kept in the cluster's metadata, members only here.

    A group whose coordinator changes starts over at the new one: members are unknown there and join again.
    """

    def __init__(
        self, *, node_id: int, view: ClusterView, offsets: OffsetStore, settings: GroupSettings
    ) -> None:
        self.offsets = offsets
        self._writes = CoordinatedOffsets(offsets=offsets, view=view)
        self._placement = GroupPlacement(node_id=node_id, view=view)
        self._settings = settings
        self._groups: dict[str, Group] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._turns = OffsetTurns()
        self._placement.on_moved(self._drop_moved)

    def registered_as(self, broker_epoch: int) -> None:
        """This broker has a new lease; groups of the one before begin anew."""
        self._placement.registered_as(broker_epoch)

    def on_moved(self, listener: Callable[[Moved], None]) -> None:
        """Calls the listener when groups have, or may have had, another coordinator."""
        self._placement.on_moved(listener)

    def coordinator(self, group_id: str) -> BrokerInfo | None:
        """The broker that coordinates a group; None: no live broker is known."""
        return self._placement.coordinator(group_id)

    def refusal(self, group_id: str) -> ErrorCode:
        """Why this broker cannot serve a group; NONE: it can."""
        return self._placement.refusal(group_id)

    def coordination(self, group_id: str) -> Coordination:
        """What a deletion goes with that is decided from here on.

        Raises:
            GroupRefusedError: this broker does not coordinate the group.
        """
        return self._placement.coordination(group_id)

    def get(self, group_id: str) -> Group | None:
        """A group with members or a past here."""
        return self._groups.get(group_id)

    def groups(self) -> list[Group]:
        """Groups with members or a past here."""
        return list(self._groups.values())

    async def join(self, group_id: str, request: JoinRequest) -> JoinResult:
        """Waits until the rebalance is complete."""
        refusal = self.refusal(group_id)
        if refusal is not ErrorCode.none:
            return JoinResult(error=refusal, member_id=request.identity.member_id)
        group = self._groups.get(group_id)
        if group is None:
            if request.identity.member_id:
                unknown = ErrorCode.unknown_member_id
                return JoinResult(error=unknown, member_id=request.identity.member_id)
            group = self._groups[group_id] = Group(group_id, self._settings)
        answer: asyncio.Future[JoinResult] = asyncio.get_running_loop().create_future()
        group.join(request, _now_ms(), _resolve(answer))
        self._arm(group)
        return await answer

    async def sync(self, group_id: str, request: SyncRequest) -> SyncResult:
        """Waits until the leader has brought the assignments."""
        refusal = self.refusal(group_id)
        if refusal is not ErrorCode.none:
            return SyncResult(error=refusal)
        group = self._groups.get(group_id)
        if group is None:
            return SyncResult(error=ErrorCode.unknown_member_id)
        answer: asyncio.Future[SyncResult] = asyncio.get_running_loop().create_future()
        group.sync(request, _now_ms(), _resolve(answer))
        self._arm(group)
        return await answer

    def heartbeat(self, group_id: str, identity: MemberIdentity, generation_id: int) -> ErrorCode:
        """A member lives."""
        refusal = self.refusal(group_id)
        group = self._groups.get(group_id)
        if refusal is not ErrorCode.none or group is None:
            return refusal or ErrorCode.unknown_member_id
        return group.heartbeat(identity, generation_id, _now_ms())

    def leave(
        self, group_id: str, members: Sequence[MemberIdentity]
    ) -> ErrorCode | list[ErrorCode]:
        """Members go; one code each, or one for all when this broker does not serve the group."""
        refusal = self.refusal(group_id)
        if refusal is not ErrorCode.none:
            return refusal
        group = self._groups.get(group_id)
        if group is None:
            return [ErrorCode.unknown_member_id] * len(members)
        codes = [group.leave(identity, _now_ms()) for identity in members]
        self._arm(group)
        return codes

    async def commit(
        self,
        group_id: str,
        identity: MemberIdentity,
        generation_id: int,
        offsets: Sequence[GroupOffset],
    ) -> ErrorCode:
        """Stores offsets if the member may.

        Raises:
            UnavailableError, TimeoutError: they could not be stored, or not yet because of others before them.
        """
        refusal = self.refusal(group_id)
        if refusal is not ErrorCode.none:
            return refusal
        partitions = [(each.topic, each.partition) for each in offsets]
        async with self.writing(group_id, partitions):
            while True:
                try:
                    coordination = self.coordination(group_id)
                    error = self._check_commit(group_id, identity, generation_id)
                    if error is not ErrorCode.none or not offsets:
                        return error
                    if await self._writes.commit(group_id, offsets, coordination):
                        return ErrorCode.none
                except GroupRefusedError as refused:
                    return refused.kafka_error_code

    def _check_commit(
        self, group_id: str, identity: MemberIdentity, generation_id: int
    ) -> ErrorCode:
        group = self._groups.get(group_id)
        if group is None:
            if generation_id >= 0:
                return ErrorCode.illegal_generation
            group = self._groups[group_id] = Group(group_id, self._settings)
        return group.check_commit(identity, generation_id, _now_ms())

    async def delete(self, group_id: str) -> ErrorCode:
        """Deletes an empty group with its offsets.

        Raises:
            UnavailableError, TimeoutError: the offsets could not be deleted.
            GroupRefusedError: this broker has lost the group meanwhile.
        """
        refusal = self.refusal(group_id)
        if refusal is not ErrorCode.none:
            return refusal
        async with self.writing(group_id):
            coordination = self.coordination(group_id)
            known = group_id in self._groups or await self.offsets.fetch_offsets(group_id, None)
            group = self._groups.get(group_id)
            if group is not None and group.state is not GroupState.EMPTY:
                return ErrorCode.non_empty_group
            if not known:
                return ErrorCode.group_id_not_found
            # Before the offsets: who joins from here on is in a group of its own, and commits after the deletion.
            self._drop(group_id, ErrorCode.group_id_not_found)
            await self.delete_offsets(group_id, None, coordination)
            return ErrorCode.none

    async def delete_offsets(
        self,
        group_id: str,
        partitions: Sequence[tuple[str, int]] | None,
        coordination: Coordination,
    ) -> None:
        """Deletes offsets, None: all of the group; inside `writing`, with the coordination of before it was decided.

        Raises:
            UnavailableError, TimeoutError: they could not be deleted, or brokers have registered meanwhile.
            GroupRefusedError: this broker has lost the group meanwhile.
        """
        await self._writes.delete(group_id, partitions, coordination)

    def writing(
        self, group_id: str, partitions: Collection[tuple[str, int]] | None = None
    ) -> AbstractAsyncContextManager[None]:
        """`async with` around what decides on offsets of a group, of some or all partitions, and writes them; in order.

        Raises:
            TimeoutError: those before took too long.
        """
        return self._turns.of(group_id, partitions)

    def forget_empty(self, group_id: str) -> None:
        """Forgets a group that nobody is in, nor about to join; its offsets are another matter."""
        group = self._groups.get(group_id)
        if group is not None and group.state is GroupState.EMPTY and not group.members.pending:
            self._drop(group_id, ErrorCode.group_id_not_found)

    def close(self) -> None:
        """Ends all groups here; their members find another coordinator."""
        for group_id in tuple(self._groups):
            self._drop(group_id, ErrorCode.not_coordinator)

    def _drop_moved(self, moved: Moved) -> None:
        for group_id in tuple(self._groups):
            if moved(group_id):
                logger.info("group_moved", group=group_id)
                self._drop(group_id, ErrorCode.not_coordinator)

    def _drop(self, group_id: str, error: ErrorCode) -> None:
        group = self._groups.pop(group_id, None)
        if group is not None:
            group.kill(error)
        timer = self._timers.pop(group_id, None)
        if timer is not None:
            timer.cancel()

    def _arm(self, group: Group) -> None:
        """Sets the timer to the next deadline. Heartbeats only move deadlines away, so they need not come here."""
        if group.state is GroupState.DEAD:
            return
        timer = self._timers.pop(group.group_id, None)
        if timer is not None:
            timer.cancel()
        deadline_ms = group.next_deadline_ms()
        if deadline_ms is not None:
            self._timers[group.group_id] = asyncio.get_running_loop().call_at(
                deadline_ms / 1000, self._tick, group
            )

    def _tick(self, group: Group) -> None:
        try:
            group.tick(_now_ms())
        except Exception:
            logger.exception("group_timer_failed", group=group.group_id)
        self._arm(group)


def _now_ms() -> int:
    # Rounded up, so that a timer that fires on time finds its deadline reached.
    return -int(-asyncio.get_running_loop().time() * 1000 // 1)


def _resolve(answer: "asyncio.Future[Result]") -> Callable[[Result], None]:
    def resolve(result: Result) -> None:
        if not answer.done():
            answer.set_result(result)

    return resolve
