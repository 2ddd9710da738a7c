"""Rebalance and time of a consumer group: the part of its state machine that no single request drives."""

from kio.schema.errors import ErrorCode

from aquifer_broker.coordination.group_members import GroupMembers
from aquifer_broker.coordination.group_values import (
    NO_GENERATION,
    GroupSettings,
    GroupState,
    JoinedMember,
    JoinResult,
    Member,
    SyncResult,
)

__all__ = ["GroupRebalance"]


class GroupRebalance:
    """States Empty, PreparingRebalance, CompletingRebalance, Stable and Dead, and what moves between them."""

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.members = GroupMembers()
        self._settings = settings
        self._join_deadline_ms: int | None = None
        self._initial_remaining_ms: int | None = None
        self._member_added = False
        self._sync_deadline_ms: int | None = None

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do; None: nothing is waited for."""
        deadlines = [member.session_deadline_ms for member in self.members if member.may_expire]
        deadlines += self.members.pending.values()
        deadlines += [
            each for each in (self._join_deadline_ms, self._sync_deadline_ms) if each is not None
        ]
        return min(deadlines, default=None)

    def _prepare_rebalance(self, now_ms: int) -> None:
        if self.state is GroupState.PREPARING_REBALANCE:
            self._complete_join_if_all_here(now_ms)
            return
        if self.state is GroupState.COMPLETING_REBALANCE:
            for member in self.members:
                member.assignment = b""
                self._answer_waiting_sync(member, ErrorCode.rebalance_in_progress, now_ms)
        self._sync_deadline_ms = None
        if self.state is GroupState.EMPTY:
            delay_ms = self._settings.initial_rebalance_delay_ms
            self._initial_remaining_ms = max(
                self.members.longest_rebalance_timeout_ms - delay_ms, 0
            )
            self._member_added = False
            self._join_deadline_ms = now_ms + delay_ms
        else:
            self._initial_remaining_ms = None
            self._join_deadline_ms = now_ms + self.members.longest_rebalance_timeout_ms
        self.state = GroupState.PREPARING_REBALANCE
        self._complete_join_if_all_here(now_ms)

    def _complete_join_if_all_here(self, now_ms: int) -> None:
        """A new group waits out its initial delay even so; more members are probably on their way."""
        if self._initial_remaining_ms is None and self.members.all_joined:
            self._complete_join(now_ms)

    def _join_time_is_over(self, now_ms: int) -> None:
        if self._initial_remaining_ms and self._member_added:
            delay_ms = min(self._settings.initial_rebalance_delay_ms, self._initial_remaining_ms)
            self._initial_remaining_ms -= delay_ms
            self._member_added = False
            self._join_deadline_ms = now_ms + delay_ms
        else:
            self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        """Ends the join phase: who has not joined is out, except static members, who may come back."""
        for member in self.members:
            if member.join_reply is None and member.group_instance_id is None:
                self.members.remove(member)
        if len(self.members) and not self.members.elect_joined_leader():
            self._join_deadline_ms = now_ms + self.members.longest_rebalance_timeout_ms
            return
        self._join_deadline_ms = None
        self._initial_remaining_ms = None
        self.generation_id += 1
        if not len(self.members):
            self._become_empty()
            return
        self.state = GroupState.COMPLETING_REBALANCE
        self.protocol_type = self.members.protocol_type
        self.protocol_name = self.members.select_protocol()
        self._sync_deadline_ms = now_ms + self.members.longest_rebalance_timeout_ms
        for member in self.members:
            member.is_new = False
            member.assignment = b""
            member.must_sync = True
            self._touch(member, now_ms)
            member.answer_join(self._current_generation(member))

    def _become_empty(self) -> None:
        self.state = GroupState.EMPTY
        self.protocol_name = None
        self.members.leader_id = None
        self._join_deadline_ms = self._sync_deadline_ms = self._initial_remaining_ms = None

    def _answer_waiting_sync(self, member: Member, error: ErrorCode, now_ms: int) -> None:
        if member.sync_reply is not None:
            self._touch(member, now_ms)
            member.answer_sync(SyncResult(error=error))

    def _current_generation(self, member: Member) -> JoinResult:
        leader_id = self.members.leader_id or ""
        members: list[JoinedMember] = []
        if member.member_id == leader_id:
            members = [
                JoinedMember(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    metadata=each.metadata(self.protocol_name),
                )
                for each in self.members
            ]
        return JoinResult(
            error=ErrorCode.none,
            member_id=member.member_id,
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader_id=leader_id,
            members=members,
        )

    def _remove(self, member: Member, now_ms: int) -> None:
        unknown = ErrorCode.unknown_member_id
        member.answer_join(JoinResult(error=unknown, member_id=member.member_id))
        member.answer_sync(SyncResult(error=unknown))
        self.members.remove(member)
        if self.state is GroupState.PREPARING_REBALANCE:
            self._complete_join_if_all_here(now_ms)
        elif self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._prepare_rebalance(now_ms)

    def tick(self, now_ms: int) -> None:
        """Does what is due."""
        for member_id, deadline_ms in tuple(self.members.pending.items()):
            if deadline_ms <= now_ms:
                del self.members.pending[member_id]
                if self.state is GroupState.PREPARING_REBALANCE:
                    self._complete_join_if_all_here(now_ms)
        for member in self.members:
            if member.may_expire and member.session_deadline_ms <= now_ms:
                self._remove(member, now_ms)
        if self._join_deadline_ms is not None and self._join_deadline_ms <= now_ms:
            self._join_time_is_over(now_ms)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            self._sync_time_is_over(now_ms)

    def _sync_time_is_over(self, now_ms: int) -> None:
        """Members that did not ask for their assignment in time are out, and the rest starts over (KAFKA-13419)."""
        self._sync_deadline_ms = None
        late = [member for member in self.members if member.must_sync]
        for member in late:
            self.members.remove(member)
        if late:
            self._prepare_rebalance(now_ms)

    def kill(self, error: ErrorCode) -> None:
        """The group ends here, because it was deleted or another broker coordinates it now."""
        self.state = GroupState.DEAD
        for member in self.members:
            member.answer_join(
                JoinResult(error=error, member_id=member.member_id, generation_id=NO_GENERATION)
            )
            member.answer_sync(SyncResult(error=error))
            self.members.remove(member)
        self.members.pending.clear()
        self._become_empty()
        self.state = GroupState.DEAD

    def _touch(self, member: Member, now_ms: int) -> None:
        """A member lives. A new one waits for its first generation and has the deadline that it came with."""
        if not member.is_new:
            member.session_deadline_ms = now_ms + member.session_timeout_ms
