"""`aquifer scrub` against running services: dry by default, heals when asked to."""

from typing import Any

from fixtures.admin_suite import AdminSuite
from fixtures.polling import eventually


async def tiered(suite: AdminSuite, count: int) -> list[dict[str, Any]]:
    """A topic's finished segments."""
    await suite.tier("orders", segments=count)

    async def all_finished() -> list[dict[str, Any]] | None:
        rows = (await suite.admin.json("segments", "list", "orders"))["segments"]
        finished = [row for row in rows if row["state"] == "COPY_SEGMENT_FINISHED"]
        return finished if len(finished) == count else None

    found = await eventually(all_finished, timeout_s=90)
    assert found is not None
    return found


async def test_a_missing_segment_is_reported_and_healed_on_demand(admin_suite: AdminSuite) -> None:
    admin = admin_suite.admin
    rows = await tiered(admin_suite, 2)
    assert await admin.json("scrub", "orders") == {
        "topic": "orders",
        "heal": False,
        "ok": True,
        "more": [],
        "findings": [],
        "errors": [],
    }

    for path in admin_suite.files(""):
        if path.is_file() and rows[0]["segment_id"] in path.name:
            path.unlink()
    dry = await admin.run("scrub", "orders", "0", "--shallow", "--json")
    assert dry.code == 1
    [finding] = dry.document["findings"]
    assert (finding["action"], finding["remedy"], finding["healed"]) == (
        "missing",
        "copy_again",
        False,
    )
    assert finding["segment_id"] == rows[0]["segment_id"]

    healed = await admin.run("scrub", "orders", "--heal", "--json")
    assert healed.code == 0, healed
    assert [each["healed"] for each in healed.document["findings"]] == [True]
    assert (await admin.json("scrub", "orders"))["ok"]
    listed = (await admin.json("segments", "list", "orders"))["segments"]
    assert {row["start_offset"] for row in listed} == {row["start_offset"] for row in rows}
    assert rows[0]["segment_id"] not in {row["segment_id"] for row in listed}


async def test_a_topic_nobody_knows_is_not_healed(admin_suite: AdminSuite) -> None:
    refused = await admin_suite.admin.run(
        "scrub", "gone", "0", "--topic-id", "A" * 22, "--heal", "--json"
    )
    assert refused.code == 0
    assert refused.document["findings"] == []
