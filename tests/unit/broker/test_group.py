"""The consumer group state machine, with time in the test's hands."""

from aquifer_broker.coordination.group import Group
from aquifer_broker.coordination.group_values import (
    GroupSettings,
    GroupState,
    JoinRequest,
    JoinResult,
    MemberIdentity,
    SyncRequest,
    SyncResult,
)
from kio.schema.errors import ErrorCode

SETTINGS = GroupSettings(initial_rebalance_delay_ms=0, max_size=3)
RANGE = (("range", b"meta"),)


class Driver:
    """A group with its clock and the answers that came."""

    def __init__(self, settings: GroupSettings = SETTINGS) -> None:
        self.group = Group("g", settings)
        self.now_ms = 1000

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        known_id_required: bool = False,
        can_skip: bool = True,
        session_timeout_ms: int = 10_000,
        protocol_type: str = "consumer",
    ) -> list[JoinResult]:
        answers: list[JoinResult] = []
        request = JoinRequest(
            identity=MemberIdentity(member_id=member_id, group_instance_id=instance),
            client_id="client",
            client_host="/h",
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=60_000,
            protocol_type=protocol_type,
            protocols=protocols,
            requires_known_member_id=known_id_required,
            can_skip_assignment=can_skip,
        )
        self.group.join(request, self.now_ms, answers.append)
        return answers

    def sync(
        self,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        generation: int | None = None,
        instance: str | None = None,
    ) -> list[SyncResult]:
        answers: list[SyncResult] = []
        request = SyncRequest(
            identity=MemberIdentity(member_id=member_id, group_instance_id=instance),
            generation_id=self.group.generation_id if generation is None else generation,
            assignments=assignments or {},
        )
        self.group.sync(request, self.now_ms, answers.append)
        return answers

    def heartbeat(self, member_id: str, instance: str | None = None) -> ErrorCode:
        identity = MemberIdentity(member_id=member_id, group_instance_id=instance)
        return self.group.heartbeat(identity, self.group.generation_id, self.now_ms)

    def leave(self, member_id: str, instance: str | None = None) -> ErrorCode:
        identity = MemberIdentity(member_id=member_id, group_instance_id=instance)
        return self.group.leave(identity, self.now_ms)

    def commit(self, member_id: str, generation: int) -> ErrorCode:
        identity = MemberIdentity(member_id=member_id)
        return self.group.check_commit(identity, generation, self.now_ms)

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass, doing what is due when it is due."""
        end_ms = self.now_ms + milliseconds
        while True:
            due_ms = self.group.next_deadline_ms()
            if due_ms is None or due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self.group.tick(self.now_ms)
        self.now_ms = end_ms

    def one_stable_member(self, **more: object) -> str:
        (joined,) = self.joined(self.join(**more))  # type: ignore[arg-type]
        instance = more.get("instance")
        assert instance is None or isinstance(instance, str)
        assert self.sync(joined.member_id, {joined.member_id: b"all"}, instance=instance)
        return joined.member_id

    def joined(self, *answers: list[JoinResult]) -> list[JoinResult]:
        """Answers of members that wait, after the initial delay."""
        self.pass_time(0)
        assert all(len(each) == 1 for each in answers)
        results = [each[0] for each in answers]
        assert {each.error for each in results} == {ErrorCode.none}
        return results

    def two_stable_members(self) -> tuple[str, str]:
        first = self.join()
        second = self.join()
        leader, other = self.joined(first, second)
        waiting = self.sync(other.member_id)
        assert waiting == []
        self.sync(leader.member_id, {leader.member_id: b"1", other.member_id: b"2"})
        assert waiting[0].assignment == b"2"
        return leader.member_id, other.member_id


def test_members_that_join_together_are_one_generation_and_the_first_leads() -> None:
    driver = Driver()
    first, second = driver.join(), driver.join()
    leader, other = driver.joined(first, second)
    assert driver.group.state is GroupState.COMPLETING_REBALANCE
    assert leader.generation_id == other.generation_id == 1
    assert leader.leader_id == other.leader_id == leader.member_id
    assert {each.member_id for each in leader.members} == {leader.member_id, other.member_id}
    assert not other.members
    assert leader.members[0].metadata == b"meta"


def test_everybody_gets_what_the_leader_assigned() -> None:
    driver = Driver()
    leader, other = driver.two_stable_members()
    assert driver.group.state is GroupState.STABLE
    assert driver.sync(leader)[0].assignment == b"1"
    assert driver.heartbeat(other) is ErrorCode.none


def test_the_first_generation_waits_for_latecomers_and_longer_when_some_come() -> None:
    driver = Driver(GroupSettings(initial_rebalance_delay_ms=3000))
    first = driver.join()
    driver.pass_time(2999)
    second = driver.join()
    driver.pass_time(2999)
    assert first == second == []
    driver.pass_time(2)
    assert first[0].generation_id == second[0].generation_id == 1


def test_a_new_member_makes_the_others_join_again() -> None:
    driver = Driver()
    member = driver.one_stable_member()
    newcomer = driver.join()
    assert driver.heartbeat(member) is ErrorCode.rebalance_in_progress
    assert newcomer == []
    again = driver.join(member)
    assert newcomer[0].generation_id == again[0].generation_id == 2


def test_a_member_that_does_not_join_again_is_out_after_the_rebalance_timeout() -> None:
    driver = Driver()
    leader, other = driver.two_stable_members()
    again = driver.join(leader)
    for _ in range(11):
        driver.pass_time(5000)
        driver.heartbeat(other)
    assert again == []
    driver.pass_time(5000)
    assert again[0].generation_id == 2
    assert driver.heartbeat(other) is ErrorCode.unknown_member_id


def test_a_silent_member_is_out_after_its_session_timeout() -> None:
    driver = Driver()
    leader, other = driver.two_stable_members()
    driver.pass_time(9000)
    driver.heartbeat(other)
    driver.pass_time(2000)
    assert driver.heartbeat(leader) is ErrorCode.unknown_member_id
    assert driver.heartbeat(other) is ErrorCode.rebalance_in_progress
    assert driver.join(other)[0].leader_id == other


def test_a_member_that_waits_for_the_others_does_not_expire() -> None:
    driver = Driver()
    leader, other = driver.two_stable_members()
    again = driver.join(leader)
    for _ in range(5):
        driver.pass_time(9000)
        driver.heartbeat(other)
    assert again == []
    driver.join(other)
    assert again[0].error is ErrorCode.none


def test_the_group_is_empty_when_everybody_left() -> None:
    driver = Driver()
    member = driver.one_stable_member()
    assert driver.leave(member) is ErrorCode.none
    assert driver.group.state is GroupState.EMPTY
    assert driver.leave(member) is ErrorCode.unknown_member_id
    assert driver.group.next_deadline_ms() is None


def test_a_member_that_leaves_starts_a_rebalance() -> None:
    driver = Driver()
    leader, other = driver.two_stable_members()
    assert driver.leave(leader) is ErrorCode.none
    assert driver.heartbeat(other) is ErrorCode.rebalance_in_progress
    assert driver.join(other)[0].members[0].member_id == other


def test_an_id_is_given_out_first_and_a_client_that_never_uses_it_holds_nobody_up() -> None:
    driver = Driver()
    member = driver.one_stable_member()
    (given,) = driver.join(known_id_required=True)
    assert given.error is ErrorCode.member_id_required
    assert driver.heartbeat(member) is ErrorCode.none
    driver.pass_time(5000)
    driver.heartbeat(member)
    driver.pass_time(5001)
    late = driver.join(given.member_id, known_id_required=True)
    assert late[0].error is ErrorCode.unknown_member_id


def test_a_given_id_joins() -> None:
    driver = Driver()
    (given,) = driver.join(known_id_required=True)
    (joined,) = driver.joined(driver.join(given.member_id, known_id_required=True))
    assert joined.member_id == given.member_id


def test_a_follower_that_repeats_its_join_gets_the_generation_again() -> None:
    driver = Driver()
    leader, other = driver.two_stable_members()
    (again,) = driver.join(other)
    assert (again.error, again.generation_id) == (ErrorCode.none, 1)
    assert driver.group.state is GroupState.STABLE
    assert driver.join(leader) == []
    assert driver.group.state is GroupState.PREPARING_REBALANCE


def test_a_join_repeated_before_the_assignment_is_answered_again() -> None:
    driver = Driver()
    first, second = driver.join(), driver.join()
    leader, _ = driver.joined(first, second)
    (again,) = driver.join(leader.member_id)
    assert again.generation_id == 1
    assert len(again.members) == 2
    assert driver.group.state is GroupState.COMPLETING_REBALANCE


def test_changed_metadata_starts_a_rebalance_and_answers_who_waits_for_an_assignment() -> None:
    driver = Driver()
    first, second = driver.join(), driver.join()
    leader, other = driver.joined(first, second)
    waiting = driver.sync(other.member_id)
    driver.join(leader.member_id, protocols=(("range", b"changed"),))
    assert waiting[0].error is ErrorCode.rebalance_in_progress


def test_the_protocol_is_one_that_all_speak_and_most_prefer() -> None:
    driver = Driver()
    first = driver.join(protocols=(("a", b""), ("b", b""), ("c", b"")))
    second = driver.join(protocols=(("b", b""), ("c", b"")))
    third = driver.join(protocols=(("c", b""), ("b", b"")))
    assert {each.protocol_name for each in driver.joined(first, second, third)} == {"b"}


def test_members_that_cannot_agree_are_refused() -> None:
    driver = Driver()
    driver.one_stable_member()
    for answers in (
        driver.join(protocols=(("other", b""),)),
        driver.join(protocol_type="connect"),
        driver.join(protocols=()),
    ):
        assert answers[0].error is ErrorCode.inconsistent_group_protocol


def test_session_timeouts_and_sizes_are_bounded() -> None:
    driver = Driver()
    assert driver.join(session_timeout_ms=1)[0].error is ErrorCode.invalid_session_timeout
    members = driver.joined(*(driver.join() for _ in range(3)))
    assert driver.join()[0].error is ErrorCode.group_max_size_reached
    assert driver.join(members[0].member_id)[0].error is ErrorCode.none


def test_requests_of_another_generation_or_member_are_refused() -> None:
    driver = Driver()
    member = driver.one_stable_member()
    assert driver.sync("nobody")[0].error is ErrorCode.unknown_member_id
    assert driver.sync(member, generation=7)[0].error is ErrorCode.illegal_generation
    assert driver.join("nobody")[0].error is ErrorCode.unknown_member_id
    assert driver.commit(member, 7) is ErrorCode.illegal_generation
    assert driver.commit("", 1) is ErrorCode.unknown_member_id
    assert driver.commit("", -1) is ErrorCode.unknown_member_id


def test_commits_are_taken_from_members_and_from_nobody_while_the_group_is_empty() -> None:
    driver = Driver()
    assert driver.commit("", -1) is ErrorCode.none
    first = driver.join()
    (joined,) = driver.joined(first)
    assert driver.commit(joined.member_id, 1) is ErrorCode.rebalance_in_progress
    driver.sync(joined.member_id)
    assert driver.commit(joined.member_id, 1) is ErrorCode.none


def test_a_member_that_never_asks_for_its_assignment_is_out() -> None:
    driver = Driver()
    first, second = driver.join(), driver.join()
    leader, other = driver.joined(first, second)
    waiting = driver.sync(other.member_id)
    for _ in range(12):
        driver.heartbeat(leader.member_id)
        driver.pass_time(5000)
    driver.heartbeat(leader.member_id)
    driver.pass_time(1)
    assert waiting[0].error is ErrorCode.rebalance_in_progress
    assert driver.heartbeat(leader.member_id) is ErrorCode.unknown_member_id
    assert driver.join(other.member_id)[0].leader_id == other.member_id


def test_a_static_member_that_restarts_keeps_its_place_without_a_rebalance() -> None:
    driver = Driver()
    first, second = driver.join(instance="one"), driver.join(instance="two")
    leader, other = driver.joined(first, second)
    driver.sync(other.member_id, instance="two")
    assignments = {leader.member_id: b"1", other.member_id: b"2"}
    driver.sync(leader.member_id, assignments, instance="one")
    (back,) = driver.join(instance="two")
    assert back.generation_id == 1
    assert back.member_id != other.member_id
    assert driver.group.state is GroupState.STABLE
    assert driver.sync(back.member_id, instance="two")[0].assignment == b"2"
    assert driver.heartbeat(other.member_id, "two") is ErrorCode.fenced_instance_id


def test_a_static_leader_that_restarts_is_told_not_to_assign_again() -> None:
    driver = Driver()
    member = driver.one_stable_member(instance="one")
    (back,) = driver.join(instance="one")
    assert back.skip_assignment
    assert back.leader_id == back.member_id != member
    assert [each.member_id for each in back.members] == [back.member_id]
    (old,) = driver.join(instance="one", can_skip=False)
    assert not old.skip_assignment
    assert old.leader_id == ""


def test_a_static_member_that_restarts_with_other_topics_starts_a_rebalance() -> None:
    driver = Driver()
    driver.one_stable_member(instance="one")
    (back,) = driver.join(instance="one", protocols=(("range", b"changed"),))
    assert back.generation_id == 2


def test_the_old_incarnation_of_a_waiting_static_member_is_fenced() -> None:
    driver = Driver()
    leader, _ = driver.two_stable_members()
    old = driver.join(instance="one")
    new = driver.join(instance="one")
    assert old[0].error is ErrorCode.fenced_instance_id
    assert new == []
    assert driver.heartbeat(leader) is ErrorCode.rebalance_in_progress


def test_a_static_member_does_not_lose_its_place_by_missing_a_rebalance() -> None:
    driver = Driver()
    member = driver.one_stable_member(instance="one", session_timeout_ms=1_000_000)
    newcomer = driver.join(session_timeout_ms=1_000_000)
    driver.pass_time(60_000)
    assert newcomer[0].error is ErrorCode.none
    assert member in driver.group.members


def test_a_static_member_leaves_by_its_instance_id() -> None:
    driver = Driver()
    driver.one_stable_member(instance="one")
    assert driver.leave("", "one") is ErrorCode.none
    assert driver.group.state is GroupState.EMPTY
    assert driver.leave("", "one") is ErrorCode.unknown_member_id


def test_everybody_who_waits_is_told_when_the_group_ends_here() -> None:
    driver = Driver()
    driver.one_stable_member()
    joining = driver.join()
    driver.group.kill(ErrorCode.not_coordinator)
    assert joining[0].error is ErrorCode.not_coordinator
    assert driver.join()[0].error is ErrorCode.coordinator_not_available
    assert driver.group.next_deadline_ms() is None


def test_a_new_member_that_disappears_while_it_waits_is_forgotten_at_last() -> None:
    driver = Driver()
    member = driver.one_stable_member(session_timeout_ms=1_000_000)
    driver.group._settings = GroupSettings(new_member_join_timeout_ms=100)
    driver.join()
    driver.pass_time(101)
    assert len(driver.group.members) == 1
    assert driver.heartbeat(member) is ErrorCode.rebalance_in_progress


def test_a_new_member_that_repeats_its_join_is_waited_for_as_long_as_before() -> None:
    """It cannot send heartbeats while it waits, so its session timeout must not begin with the repetition."""
    driver = Driver()
    old = driver.one_stable_member()
    (given,) = driver.join(known_id_required=True)
    first = driver.join(given.member_id)
    again = driver.join(given.member_id)
    assert first[0].error is ErrorCode.unknown_member_id
    for _ in range(4):
        driver.pass_time(5_000)
        assert driver.heartbeat(old) is ErrorCode.rebalance_in_progress
    assert again == []
    driver.join(old)
    assert again[0].error is ErrorCode.none
