"""The state machine of a consumer group (Kafka's classic group protocol), without I/O and clock.

Time is an argument in milliseconds of a monotonic clock; answers that have to wait are given through the `reply` of the
request. `next_deadline_ms` says when `tick` has to be called.
"""

import secrets
from collections.abc import Callable
from dataclasses import replace

from kio.schema.errors import ErrorCode

from aquifer_broker.coordination.group_rebalance import GroupRebalance
from aquifer_broker.coordination.group_values import (
    GroupState,
    JoinRequest,
    JoinResult,
    Member,
    MemberIdentity,
    SyncRequest,
    SyncResult,
)

__all__ = ["Group", "JoinReply", "SyncReply"]

JoinReply = Callable[[JoinResult], None]
SyncReply = Callable[[SyncResult], None]


class Group(GroupRebalance):
    """One group and what its members ask of it."""

    def join(self, request: JoinRequest, now_ms: int, reply: JoinReply) -> None:
        """A member wants to be in the next generation."""
        error = self._refuse_join(request)
        if error is not ErrorCode.none:
            reply(JoinResult(error=error, member_id=request.identity.member_id))
        elif request.identity.member_id == "":
            self._join_unknown(request, now_ms, reply)
        else:
            self._join_known(request, now_ms, reply)

    def _refuse_join(self, request: JoinRequest) -> ErrorCode:
        settings = self._settings
        member_id = request.identity.member_id
        if not (
            settings.min_session_timeout_ms
            <= request.session_timeout_ms
            <= settings.max_session_timeout_ms
        ):
            return ErrorCode.invalid_session_timeout
        if self.state is GroupState.DEAD:
            return ErrorCode.coordinator_not_available
        is_static = self.members.static_id(request.identity.group_instance_id) is not None
        if member_id not in self.members and not is_static and self._is_full(member_id):
            return ErrorCode.group_max_size_reached
        names = [name for name, _ in request.protocols]
        own_id = self.members.static_id(request.identity.group_instance_id) or member_id
        if not self.members.supports(request.protocol_type, names, but=own_id):
            return ErrorCode.inconsistent_group_protocol
        return ErrorCode.none

    def _is_full(self, member_id: str) -> bool:
        taken = len(self.members) + len(self.members.pending) - (member_id in self.members.pending)
        return taken >= self._settings.max_size

    def _join_unknown(self, request: JoinRequest, now_ms: int, reply: JoinReply) -> None:
        instance_id = request.identity.group_instance_id
        member_id = f"{instance_id or request.client_id}-{_random_uuid()}"
        static_id = self.members.static_id(instance_id)
        if static_id is not None:
            self._replace_static(self.members[static_id], member_id, request, now_ms, reply)
        elif instance_id is None and request.requires_known_member_id:
            # A client that never comes back with its id must not hold up a rebalance (KIP-394).
            self.members.pending[member_id] = now_ms + request.session_timeout_ms
            reply(JoinResult(error=ErrorCode.member_id_required, member_id=member_id))
        else:
            self._add(member_id, request, now_ms, reply)

    def _join_known(self, request: JoinRequest, now_ms: int, reply: JoinReply) -> None:
        member_id = request.identity.member_id
        if member_id in self.members.pending and request.identity.group_instance_id is None:
            self._add(member_id, request, now_ms, reply)
            return
        error = self.members.check(request.identity)
        if error is ErrorCode.none and self.state is GroupState.EMPTY:
            error = ErrorCode.unknown_member_id
        if error is not ErrorCode.none:
            reply(JoinResult(error=error, member_id=member_id))
            return
        member = self.members[member_id]
        if self._must_rebalance(member, request):
            self._update(member, request, reply)
            self._touch(member, now_ms)
            self._prepare_rebalance(now_ms)
        else:
            self._touch(member, now_ms)
            reply(self._current_generation(member))

    def _must_rebalance(self, member: Member, request: JoinRequest) -> bool:
        unchanged = member.protocols == request.protocols
        if self.state is GroupState.COMPLETING_REBALANCE:
            return not unchanged
        if self.state is GroupState.STABLE:
            return member.member_id == self.members.leader_id or not unchanged
        return True

    def _add(self, member_id: str, request: JoinRequest, now_ms: int, reply: JoinReply) -> None:
        member = Member(
            member_id=member_id,
            group_instance_id=request.identity.group_instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=request.protocols,
            is_new=True,
            join_reply=reply,
            session_deadline_ms=now_ms + self._settings.new_member_join_timeout_ms,
        )
        self.members.add(member)
        self._member_added = True
        self._prepare_rebalance(now_ms)

    def _replace_static(
        self, member: Member, member_id: str, request: JoinRequest, now_ms: int, reply: JoinReply
    ) -> None:
        """A static member restarted: its old incarnation is fenced, its place kept (KIP-345)."""
        fenced = ErrorCode.fenced_instance_id
        member.answer_join(JoinResult(error=fenced, member_id=member.member_id))
        member.answer_sync(SyncResult(error=fenced))
        same_protocols = member.protocols == request.protocols
        self.members.rename(member, member_id)
        if self.state is GroupState.STABLE and same_protocols:
            self._update(member, request, None)
            self._touch(member, now_ms)
            reply(self._returned_static(member, request))
            return
        self._update(member, request, reply)
        self._touch(member, now_ms)
        self._prepare_rebalance(now_ms)

    def _returned_static(self, member: Member, request: JoinRequest) -> JoinResult:
        """The generation goes on; a leader is told not to assign again, if it understands that (KIP-814)."""
        is_leader = member.member_id == self.members.leader_id
        result = self._current_generation(member)
        if not is_leader:
            return result
        # An old client that believed to lead would assign, and nobody would take it over.
        return replace(
            result,
            leader_id=result.leader_id if request.can_skip_assignment else "",
            members=result.members if request.can_skip_assignment else (),
            skip_assignment=request.can_skip_assignment,
        )

    def _update(self, member: Member, request: JoinRequest, reply: JoinReply | None) -> None:
        member.protocols = request.protocols
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id = request.client_id
        member.client_host = request.client_host
        if reply is not None:
            superseded = JoinResult(error=ErrorCode.unknown_member_id, member_id=member.member_id)
            member.answer_join(superseded)
            member.join_reply = reply

    def sync(self, request: SyncRequest, now_ms: int, reply: SyncReply) -> None:
        """A member asks for its assignment; the leader brings everybody's."""
        error = self._refuse_sync(request)
        if error is not ErrorCode.none:
            reply(SyncResult(error=error))
            return
        member = self.members[request.identity.member_id]
        self._touch(member, now_ms)
        member.must_sync = False
        if self.state is GroupState.STABLE:
            reply(self._assignment_of(member))
            return
        member.answer_sync(SyncResult(error=ErrorCode.rebalance_in_progress))
        member.sync_reply = reply
        if member.member_id == self.members.leader_id:
            self._take_assignments(request.assignments, now_ms)

    def _refuse_sync(self, request: SyncRequest) -> ErrorCode:
        error = self._check_member(request.identity, request.generation_id)
        if error is not ErrorCode.none:
            return error
        same_type = request.protocol_type in (None, self.protocol_type)
        if not same_type or request.protocol_name not in (None, self.protocol_name):
            return ErrorCode.inconsistent_group_protocol
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def _check_member(self, identity: MemberIdentity, generation_id: int) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.coordinator_not_available
        error = self.members.check(identity)
        if error is not ErrorCode.none:
            return error
        if self.state is GroupState.EMPTY:
            return ErrorCode.unknown_member_id
        return (
            ErrorCode.none if generation_id == self.generation_id else ErrorCode.illegal_generation
        )

    def _take_assignments(self, assignments: dict[str, bytes], now_ms: int) -> None:
        self.state = GroupState.STABLE
        for member in self.members:
            member.assignment = assignments.get(member.member_id, b"")
        for member in self.members:
            if member.sync_reply is not None:
                self._touch(member, now_ms)
                member.answer_sync(self._assignment_of(member))

    def _assignment_of(self, member: Member) -> SyncResult:
        return SyncResult(
            error=ErrorCode.none,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    def heartbeat(self, identity: MemberIdentity, generation_id: int, now_ms: int) -> ErrorCode:
        """A member says that it lives; the answer tells it when it has to join again."""
        error = self._check_member(identity, generation_id)
        if error is not ErrorCode.none:
            return error
        self._touch(self.members[identity.member_id], now_ms)
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def leave(self, identity: MemberIdentity, now_ms: int) -> ErrorCode:
        """A member goes; a static one may be named by its instance id alone (KIP-345)."""
        if self.state is GroupState.DEAD:
            return ErrorCode.coordinator_not_available
        if identity.member_id in self.members.pending:
            del self.members.pending[identity.member_id]
            if self.state is GroupState.PREPARING_REBALANCE:
                self._complete_join_if_all_here(now_ms)
            return ErrorCode.none
        static_id = self.members.static_id(identity.group_instance_id)
        if identity.member_id == "" and static_id is not None:
            identity = MemberIdentity(
                member_id=static_id, group_instance_id=identity.group_instance_id
            )
        error = self.members.check(identity)
        if error is ErrorCode.none:
            self._remove(self.members[identity.member_id], now_ms)
        return error

    def check_commit(self, identity: MemberIdentity, generation_id: int, now_ms: int) -> ErrorCode:
        """Whether offsets may be committed; members keep their session by it."""
        is_member = bool(identity.member_id) or identity.group_instance_id is not None
        if generation_id < 0 and not is_member and self.state is GroupState.EMPTY:
            # A consumer that assigns partitions itself.
            return ErrorCode.none
        error = self._check_member(identity, generation_id)
        if error is not ErrorCode.none:
            return error
        if self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.rebalance_in_progress
        self._touch(self.members[identity.member_id], now_ms)
        return ErrorCode.none


def _random_uuid() -> str:
    raw = secrets.token_hex(16)
    return f"{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"
