"""What members of a group subscribe to, as they say it themselves."""

import struct
import subprocess
import sys

from aquifer_broker.coordination.group import Group
from aquifer_broker.coordination.group_values import (
    GroupSettings,
    GroupState,
    JoinRequest,
    MemberIdentity,
)
from aquifer_broker.coordination.subscriptions import subscribed_topics

TOPICS = struct.pack(">hi", 1, 2) + b"\0\1a\0\2bc" + struct.pack(">i", -1)
HUGE = struct.pack(">hi", 0, 2**31 - 1)
MEMORY_BYTES = 4 << 30


def group(*subscriptions: bytes) -> Group:
    made = Group("g", GroupSettings(initial_rebalance_delay_ms=0))
    for subscription in subscriptions:
        request = JoinRequest(
            identity=MemberIdentity(member_id=""),
            client_id="c",
            client_host="h",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(("range", subscription),),
        )
        made.join(request, 0, lambda _: None)
    while made.state is GroupState.PREPARING_REBALANCE:
        made.tick(0)
    return made


def test_topics_of_all_members_are_found_and_unreadable_ones_are_none() -> None:
    assert subscribed_topics(group(TOPICS, b"", b"\0", HUGE)) == {"a", "bc"}


def in_little_memory() -> None:
    """Run by the test below in a process of its own, which an allocation that fails would end."""
    import resource  # noqa: PLC0415

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    assert subscribed_topics(group(HUGE)) == set()


def test_a_subscription_that_announces_more_topics_than_it_has_takes_no_memory() -> None:
    call = f"import runpy; runpy.run_path({__file__!r})['in_little_memory']()"
    done = subprocess.run(
        [sys.executable, "-c", call], capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
