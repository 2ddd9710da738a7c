from typing import Any, cast

from aquifer_rpc.endpoints import Endpoint, Endpoints

NO_CHANNEL = cast(Any, None)


def endpoints(count: int) -> tuple[list[Endpoint], Endpoints]:
    members = [Endpoint(target=f"host-{n}:1", channel=NO_CHANNEL) for n in range(count)]
    return members, Endpoints(members, down_s=60)


def test_a_key_has_one_order_and_all_endpoints_are_in_it() -> None:
    members, chosen = endpoints(5)

    first = chosen.order(b"key")

    assert chosen.order(b"key") == first
    assert {each.target for each in first} == {each.target for each in members}


def test_keys_are_spread_evenly() -> None:
    _, chosen = endpoints(4)
    counts: dict[str, int] = {}
    for number in range(4000):
        target = chosen.order(str(number).encode())[0].target
        counts[target] = counts.get(target, 0) + 1

    assert len(counts) == 4
    assert all(800 < count < 1200 for count in counts.values())


def test_only_the_keys_of_an_endpoint_that_is_down_move() -> None:
    members, chosen = endpoints(4)
    keys = [str(number).encode() for number in range(500)]
    before = {key: chosen.order(key)[0].target for key in keys}

    chosen.mark_down(members[2])
    after = {key: chosen.order(key)[0].target for key in keys}

    for key in keys:
        if before[key] == members[2].target:
            assert after[key] != members[2].target
        else:
            assert after[key] == before[key]


def test_an_endpoint_that_is_down_is_still_asked_last_and_comes_back() -> None:
    members, chosen = endpoints(2)
    chosen.mark_down(members[0])

    assert chosen.order(b"x")[-1] is members[0]

    chosen.mark_up(members[0])
    firsts = {chosen.order(str(number).encode())[0].target for number in range(50)}
    assert members[0].target in firsts


def test_without_a_key_the_endpoints_take_turns() -> None:
    _, chosen = endpoints(3)

    assert [chosen.order()[0].target for _ in range(6)] == [
        "host-1:1",
        "host-2:1",
        "host-0:1",
        "host-1:1",
        "host-2:1",
        "host-0:1",
    ]
