"""`aquifer segments`, `partitions` and `status` against running services."""

from typing import Any

from aquifer_admin.render import as_time
from fixtures.admin_suite import AdminSuite
from fixtures.polling import eventually


async def copied(suite: AdminSuite, topic: str, count: int) -> list[dict[str, Any]]:
    """The topic's segments, once so many are finished."""

    async def all_finished() -> list[dict[str, Any]] | None:
        rows = (await suite.admin.json("segments", "list", topic))["segments"]
        finished = [row for row in rows if row["state"] == "COPY_SEGMENT_FINISHED"]
        return finished if len(finished) == count else None

    found = await eventually(all_finished, timeout_s=60)
    assert found is not None
    return found


async def test_segments_are_listed_described_and_have_a_history(admin_suite: AdminSuite) -> None:
    """SR-16."""
    admin = admin_suite.admin
    tip = await admin_suite.tier("orders", segments=3)
    rows = await copied(admin_suite, "orders", 3)
    assert [row["start_offset"] for row in rows] == sorted(admin_suite.segments)
    assert {row["topic_id"] for row in rows} == {str(tip.topic_id)}

    first = rows[0]["segment_id"]
    described = await admin.json("segments", "describe", first)
    assert described["segment"] == rows[0]
    assert described["stored"]["original_bytes"] == rows[0]["size_bytes"]
    suffixes = [key.rpartition(".")[2] for key in described["stored"]["object_keys"]]
    assert suffixes == ["log", "manifest"]

    events = (await admin.json("segments", "history", first, "--topic", "orders"))["events"]
    assert [event["to_state"] for event in events] == [
        "COPY_SEGMENT_STARTED",
        "COPY_SEGMENT_FINISHED",
    ]
    assert events[0]["from_state"] is None
    by_topic_id = await admin.json(
        *("segments", "history", first, "--topic", "orders", "--partition", "0"),
        *("--topic-id", str(tip.topic_id)),
    )
    assert by_topic_id["events"] == events

    before = as_time(events[0]["timestamp_ms"] - 1)
    then = await admin.json("segments", "list", "orders", "--at", before)
    assert first not in [row["segment_id"] for row in then["segments"]]
    later = await admin.json("segments", "list", "orders", "--at", "2999-01-01")
    assert later["segments"] == rows

    topic = (await admin.json("topics", "describe", "orders"))["topic"]
    assert topic["remote_segments"] == 3
    assert topic["remote_bytes"] == sum(row["size_bytes"] for row in rows)
    [partition] = topic["partitions"]
    assert (partition["leader"], partition["remote_segments"]) == (1, 3)
    [listed] = (await admin.json("topics", "list", "--sizes"))["topics"]
    assert listed["remote_bytes"] == topic["remote_bytes"]

    unknown = await admin.run("segments", "describe", "A" * 22, "--json")
    assert (unknown.code, unknown.out) == (1, "")
    assert unknown.err.rstrip().endswith("(SEGMENT_NOT_FOUND)")


async def test_verification_finds_damage_and_loss(admin_suite: AdminSuite) -> None:
    admin = admin_suite.admin
    await admin_suite.tier("orders", segments=2)
    rows = await copied(admin_suite, "orders", 2)
    intact = await admin.json("segments", "verify", "--topic", "orders")
    assert intact["ok"]
    assert [row["segment_id"] for row in intact["segments"]] == [row["segment_id"] for row in rows]
    assert intact["verified_bytes"] > 0

    damaged = admin_suite.files(".log")[0]
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged.write_bytes(content)
    outcome = await admin.run("segments", "verify", rows[0]["segment_id"], "--json")
    assert outcome.code == 1
    [row] = outcome.document["segments"]
    assert row["findings"][0]["part"] == "log"
    shown = await admin.run("segments", "verify", "--topic", "orders")
    assert shown.code == 1
    assert "intact" in shown.out
    assert "log chunk 0" in shown.out

    for path in admin_suite.files(""):
        if path.is_file() and rows[1]["segment_id"] in path.name:
            path.unlink()
    lost = await admin.run("segments", "verify", rows[1]["segment_id"], "--json")
    assert lost.code == 1
    assert lost.document["segments"][0]["findings"][0]["part"] == "manifest"
    missing = await admin.run("segments", "describe", rows[1]["segment_id"], "--json")
    assert missing.code == 1
    assert missing.document["stored"] is None


async def test_partitions_show_the_five_offsets_and_run_tasks(admin_suite: AdminSuite) -> None:
    """SR-20."""
    admin = admin_suite.admin
    await admin_suite.tier("orders", segments=2)
    rows = await copied(admin_suite, "orders", 2)

    async def caught_up() -> dict[str, Any] | None:
        [row] = (await admin.json("partitions", "list", "--topic", "orders"))["partitions"]
        done = row["highest_remote_offset"] == rows[-1]["end_offset"]
        return row if done and not row["copy_lag_segments"] else None

    row = await eventually(caught_up, timeout_s=60)
    assert row is not None
    offsets = ("log_start_offset", "local_log_start_offset", "highest_remote_offset")
    assert [row[key] for key in offsets] == [0, 0, rows[-1]["end_offset"]]
    assert row["last_stable_offset"] == row["log_end_offset"] == rows[-1]["end_offset"] + 1
    assert row["last_error_reason"] is None

    described = (await admin.json("partitions", "describe", "orders", "0"))["partition"]
    assert {task["task"] for task in described["tasks"]} >= {"copy", "expiration"}
    assert described["manager"] == admin.manager

    run = await admin.json("partitions", "run-task", "orders", "0", "scrub", "--dry-run")
    assert (run["task"], run["dry_run"], run["actions"]) == ("scrub", True, [])

    wrong = await admin.run("partitions", "describe", "orders", "5")
    assert wrong.code == 1
    assert "topic 'orders' has no partition 5" in wrong.err


async def test_a_pause_lasts_until_it_is_resumed(admin_suite: AdminSuite) -> None:
    admin = admin_suite.admin
    await admin_suite.tier("orders", segments=1)
    paused = await admin.json("partitions", "pause", "orders")
    assert [(row["partition"], row["paused"]) for row in paused["partitions"]] == [(0, True)]
    assert (await admin.json("partitions", "describe", "orders", "0"))["partition"]["paused"]
    not_enough = await admin.run("partitions", "resume", "orders", "0", "--json")
    assert not_enough.code == 1
    assert not_enough.document["partitions"][0]["paused"]
    resumed = await admin.json("partitions", "resume", "orders")
    assert not resumed["partitions"][0]["paused"]
    alone = await admin.json("partitions", "pause", "orders", "0")
    assert alone["partitions"][0]["paused"]
    assert not (await admin.json("partitions", "resume", "orders", "0"))["partitions"][0]["paused"]


async def test_a_pause_tells_who_made_it_and_why_until_it_is_resumed_even_of_a_topic_that_is_gone(
    admin_suite: AdminSuite,
) -> None:
    admin = admin_suite.admin
    tip = await admin_suite.tier("orders", segments=1)
    assert (await admin.json("partitions", "pauses"))["pauses"] == []
    told = await admin.json("partitions", "pause", "orders", "0", "--reason", "a loss")
    assert (told["durable"], told["untold"]) == (True, [])
    await admin.json("partitions", "pause", "orders")
    listed = (await admin.json("partitions", "pauses"))["pauses"]
    assert [(each["topic"], each["partition"], each["topic_id"]) for each in listed] == [
        ("orders", None, None),
        ("orders", 0, str(tip.topic_id)),
    ]
    assert listed[1]["reason"] == "a loss"
    assert "@" in listed[1]["paused_by"]
    described = await admin.json("partitions", "describe", "orders", "0")
    assert {each["since_ms"] for each in described["partition"]["pauses"]} == {
        each["since_ms"] for each in listed
    }
    await admin.run("topics", "delete", "orders", "--yes")
    gone = await admin.json("partitions", "resume", "orders")
    assert (gone["durable"], gone["partitions"][0]["paused"]) == (True, False)
    assert (await admin.json("partitions", "pauses"))["pauses"] == []
    assert "there is no topic 'orders'" in (await admin.run("partitions", "resume", "orders")).err


async def test_status_tells_what_is_up_and_ends_with_one_when_something_is_down(
    admin_suite: AdminSuite,
) -> None:
    admin = admin_suite.admin
    await admin_suite.tier("orders", segments=1)
    await copied(admin_suite, "orders", 1)
    status = await admin.json("status")
    assert status["ok"]
    assert status["down"] == []
    assert {row["service"]: row["state"] for row in status["services"]} == dict.fromkeys(
        ("metadata", "manager", "storage"), "serving"
    )
    [storage] = [row for row in status["services"] if row["service"] == "storage"]
    assert storage["version"]
    assert storage["capabilities"]["backend"] == "filesystem"
    [broker] = status["brokers"]
    assert (broker["alive"], broker["kafka_reachable"]) == (True, True)
    assert broker["log_service_state"] == "serving"
    assert status["partitions"]["partitions"] == status["partitions"]["managed_partitions"] == 1
    assert "Everything is up." in (await admin.run("status")).out

    await admin_suite.storage.stop(0)
    outcome = await admin.run("status", "--json", "--timeout", "5")
    assert outcome.code == 1
    assert outcome.document["down"] == [f"storage at {admin.storage}"]
    shown = await admin.run("status", "--timeout", "5")
    assert shown.code == 1
    assert "unreachable" in shown.out


async def test_segments_are_warmed_before_they_are_read(admin_suite: AdminSuite) -> None:
    admin = admin_suite.admin
    await admin_suite.tier("orders", segments=3)
    rows = await copied(admin_suite, "orders", 3)
    ids = [row["segment_id"] for row in rows]
    warmed = await admin.json("segments", "warm", *ids)
    assert [row["segment_id"] for row in warmed["segments"]] == ids
    assert warmed["warmed_bytes"] == sum(row["size_bytes"] for row in rows)
    part = await admin.json("segments", "warm", ids[0], "--start-position", "1000000000")
    assert part["warmed_bytes"] == 0


async def test_data_keys_are_rewrapped_with_the_active_key(admin_suite: AdminSuite) -> None:
    admin, ring = admin_suite.admin, admin_suite.ring
    await admin_suite.tier("orders", segments=3)
    rows = await copied(admin_suite, "orders", 3)
    kept = (ring.path.parent / "a.key").read_bytes()
    ring.put("b")
    ring.remove("a", active="b")
    refused = await admin.run("segments", "rewrap", "orders", "--json")
    assert refused.code == 1
    assert not refused.document["ok"]
    assert all("'a'" in row["error"] for row in refused.document["segments"])

    ring.put("a", kept)
    ring.activate("b")
    done = await admin.json("segments", "rewrap", "orders")
    assert (done["ok"], done["rewrapped"]) == (True, 3)
    assert {(row["previous_key_id"], row["key_id"]) for row in done["segments"]} == {("a", "b")}
    ring.remove("a", active="b")
    again = await admin.json("segments", "rewrap", "orders", "--partition", "0")
    assert (again["ok"], again["rewrapped"]) == (True, 0)
    described = await admin.json("segments", "describe", rows[0]["segment_id"])
    assert described["stored"]["key_id"] == "b"
    assert (await admin.json("segments", "verify", "--topic", "orders"))["ok"]
