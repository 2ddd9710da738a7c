"""`aquifer why` against running services."""

from fixtures.admin_suite import AdminSuite
from fixtures.polling import eventually


async def test_why_names_reasons_for_a_partition_an_offset_and_a_segment(
    admin_suite: AdminSuite,
) -> None:
    admin = admin_suite.admin
    await admin_suite.tier("orders", segments=1)

    async def remote() -> list[dict[str, str]] | None:
        rows = (await admin.json("why", "orders", "0", "--offset", "0"))["explanations"]
        found = [row["reason"] for row in rows]
        return rows if "RETENTION_UNLIMITED" in found else None

    rows = await eventually(remote, timeout_s=90)
    assert rows is not None
    by_question = {row["question"]: row for row in rows}
    assert by_question["not_deleted"]["reason"] == "RETENTION_UNLIMITED"
    assert by_question["unreadable"]["reason"] == "READ_LOCALLY"
    assert by_question["still_local"]["text"]

    segment_id = by_question["not_deleted"]["segment_id"]
    shown = await admin.run("why", "orders", "0", "--segment", segment_id)
    assert shown.code == 0
    assert segment_id in shown.out
    wrong = await admin.run("why", "orders", "--offset", "3")
    assert wrong.code in {1, 2}
    assert "PARTITION" in wrong.err
