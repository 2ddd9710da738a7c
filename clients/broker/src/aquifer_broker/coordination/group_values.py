"""Values of consumer groups: states, requests, results, members."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from kio.schema.errors import ErrorCode

__all__ = [
    "GroupSettings",
    "GroupState",
    "JoinRequest",
    "JoinResult",
    "JoinedMember",
    "Member",
    "MemberIdentity",
    "SyncRequest",
    "SyncResult",
]

NO_GENERATION = -1


class GroupState(StrEnum):
    """Kafka's `ClassicGroupState`, with its names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The broker's `group.*` settings."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdentity:
    """How a member names itself in every request after joining."""

    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A JoinGroup. `protocols`: (name, metadata) in the member's order of preference."""

    identity: MemberIdentity
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    requires_known_member_id: bool = False
    can_skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """A member as the leader is told of it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    """Answer of a JoinGroup; `members` is only filled for the leader."""

    error: ErrorCode
    member_id: str
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    members: Sequence[JoinedMember] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A SyncGroup; `assignments` (member id -> bytes) comes from the leader only."""

    identity: MemberIdentity
    generation_id: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """Answer of a SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(slots=True, kw_only=True)
class Member:
    """A member of a group.

    Attributes:
        is_new: has not been through a rebalance yet.
        must_sync: has not asked for its assignment in this generation yet.
        join_reply, sync_reply: set while it waits for an answer.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    session_deadline_ms: int = 0
    is_new: bool = False
    must_sync: bool = False
    join_reply: Callable[[JoinResult], None] | None = None
    sync_reply: Callable[[SyncResult], None] | None = None

    def metadata(self, protocol_name: str | None) -> bytes:
        """Its metadata for a protocol; empty when it does not speak it."""
        return next((data for name, data in self.protocols if name == protocol_name), b"")

    def answer_join(self, result: JoinResult) -> None:
        """Answers a waiting JoinGroup, if there is one."""
        reply, self.join_reply = self.join_reply, None
        if reply is not None:
            reply(result)

    def answer_sync(self, result: SyncResult) -> None:
        """Answers a waiting SyncGroup, if there is one."""
        reply, self.sync_reply = self.sync_reply, None
        if reply is not None:
            reply(result)

    @property
    def may_expire(self) -> bool:
        """A member that waits for an answer cannot send heartbeats; a new one is not waited for without end."""
        return self.is_new or (self.join_reply is None and self.sync_reply is None)
