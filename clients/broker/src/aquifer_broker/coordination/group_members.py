"""Who is in a group: members, static identities, ids given out, leader and protocol."""

from collections import Counter
from collections.abc import Iterable, Iterator

from kio.schema.errors import ErrorCode

from aquifer_broker.coordination.group_values import Member, MemberIdentity

__all__ = ["GroupMembers"]


class GroupMembers:
    """Membership of one group, without time and states."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._static: dict[str, str] = {}
        self.pending: dict[str, int] = {}
        """Member ids given out that have not joined yet, with their deadline in ms."""
        self.leader_id: str | None = None
        self.added = 0
        """Members that ever came."""

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(tuple(self._members.values()))

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def static_id(self, group_instance_id: str | None) -> str | None:
        """Member id of a static member; None: no such member."""
        return self._static.get(group_instance_id) if group_instance_id is not None else None

    def check(self, identity: MemberIdentity) -> ErrorCode:
        """Whether a member is who it says (Kafka's `validateMember`)."""
        known_id = self.static_id(identity.group_instance_id)
        if identity.group_instance_id is not None and known_id is None:
            return ErrorCode.unknown_member_id
        if known_id is not None and known_id != identity.member_id:
            return ErrorCode.fenced_instance_id
        if identity.member_id not in self._members:
            return ErrorCode.unknown_member_id
        return ErrorCode.none

    def add(self, member: Member) -> None:
        """Adds a member; the first one leads."""
        self._members[member.member_id] = member
        self.added += 1
        self.pending.pop(member.member_id, None)
        if member.group_instance_id is not None:
            self._static[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member: Member) -> None:
        """Removes a member; another one leads if it was the leader."""
        del self._members[member.member_id]
        if member.group_instance_id is not None:
            self._static.pop(member.group_instance_id, None)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self._members), None)

    def rename(self, member: Member, member_id: str) -> None:
        """Gives a static member that came back its new id, keeping its place."""
        del self._members[member.member_id]
        was_leader = self.leader_id == member.member_id
        member.member_id = member_id
        self._members[member_id] = member
        if member.group_instance_id is not None:
            self._static[member.group_instance_id] = member_id
        if was_leader:
            self.leader_id = member_id

    def joined(self) -> list[Member]:
        """Members whose JoinGroup waits for the others."""
        return [member for member in self if member.join_reply is not None]

    @property
    def all_joined(self) -> bool:
        """Whether nobody is waited for."""
        return not self.pending and all(member.join_reply is not None for member in self)

    def elect_joined_leader(self) -> bool:
        """Lets a member that joined lead if the leader has not; False: none has joined."""
        leader = self._members.get(self.leader_id) if self.leader_id is not None else None
        if leader is not None and leader.join_reply is not None:
            return True
        joined = self.joined()
        if not joined:
            return False
        self.leader_id = joined[0].member_id
        return True

    def supports(self, protocol_type: str, names: Iterable[str], but: str | None = None) -> bool:
        """Whether a member with these protocols fits to the others, leaving one of them out."""
        names = set(names)
        if not protocol_type or not names:
            return False
        others = [member for member in self if member.member_id != but]
        if not others:
            return True
        return others[0].protocol_type == protocol_type and bool(names & _common(others))

    def select_protocol(self) -> str | None:
        """The protocol that most members prefer among those all of them speak."""
        common = _common(self)
        votes: Counter[str] = Counter()
        for member in self:
            votes.update([next(name for name, _ in member.protocols if name in common)])
        return votes.most_common(1)[0][0] if votes else None

    @property
    def protocol_type(self) -> str | None:
        """Protocol type that the members have in common."""
        return next((member.protocol_type for member in self), None)

    @property
    def longest_rebalance_timeout_ms(self) -> int:
        """How long a rebalance waits for members."""
        return max((member.rebalance_timeout_ms for member in self), default=0)


def _common(members: Iterable[Member]) -> set[str]:
    sets = [{name for name, _ in member.protocols} for member in members]
    return set.intersection(*sets) if sets else set()
