"""Failures are one line that says what, where and the remedy; 1 for failures, 2 for wrong usage."""

import pytest
from aquifer_admin import cli
from aquifer_admin.connection import ConnectionOptions, Role, Session, cause
from aquifer_core.errors import (
    DeadlineExceededError,
    ErrorReason,
    RemoteStorageUnavailableError,
    StaleLeaderEpochError,
)
from aquifer_standalone.ports import hold_port

Captured = pytest.CaptureFixture[str]


def fail(capsys: Captured, *arguments: str) -> tuple[int, str]:
    """Exit code and the one line of a command that fails and prints nothing else."""
    code = cli.main(list(arguments))
    captured = capsys.readouterr()
    assert captured.out == ""
    [line] = captured.err.splitlines()
    return code, line


def test_a_service_that_is_not_there_is_named_with_the_way_to_say_where_it_is(
    capsys: Captured,
) -> None:
    with hold_port() as port:
        address = f"127.0.0.1:{port.number}"
        code, line = fail(capsys, "topics", "list", "--metadata", address, "--timeout", "2")
    assert code == 1
    assert line == (
        f"aquifer: metadata at {address}: does not answer (Connection refused); start it, or say where"
        " it is with --metadata or AQUIFER_ADMIN_METADATA (PEER_UNAVAILABLE)"
    )


def test_nothing_is_written_to_standard_output_when_json_was_asked_for(capsys: Captured) -> None:
    with hold_port() as port:
        address = f"127.0.0.1:{port.number}"
        code, line = fail(capsys, "segments", "list", "t", "--metadata", address, "--json")
    assert (code, "metadata at" in line) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("nope",), "No such command 'nope'"),
        (("topics", "create"), "Missing argument 'TOPIC'"),
        (("topics", "list", "--metadata", "nowhere"), "give --metadata as host:port"),
        (("topics", "list", "--timeout", "0"), "--timeout"),
        (("topics", "alter", "t"), "nothing to change; give --set"),
        (("topics", "alter", "t", "--set", "retention.ms"), "give --set KEY=VALUE"),
        (("topics", "create", "t", "--config", "=5"), "give --config KEY=VALUE"),
        (("segments", "verify"), "give ids, or --topic"),
        (("segments", "describe", "short"), "expected 22 characters"),
        (("segments", "history", "A" * 22, "--topic-id", "B" * 22), "give all three"),
        (("partitions", "run-task", "t", "0", "compact"), "'compact' is not one of"),
        (("partitions", "describe", "t", "-1"), "-1"),
        (("partitions", "describe", "t", "99999999999"), "PARTITION"),
        (("topics", "create", "t", "--partitions", "99999999999"), "--partitions"),
        (("topics", "create", "t", "--replication-factor", "99999999999"), "--replication-factor"),
        (("topics", "alter", "t", "--partitions", "99999999999"), "--partitions"),
        (("scrub", "t", "99999999999", "--topic-id", "B" * 22), "PARTITION"),
        (("scrub", "t", "--run-timeout", "inf"), "--run-timeout"),
        (("segments", "history", "A" * 22, "--partition", "99999999999"), "--partition"),
        (("segments", "warm", "A" * 22, "--start-position", "99999999999"), "--start-position"),
        (("why", "t", "0", "--offset", "9" * 20), "--offset"),
        (("topics", "list", "--timeout", "inf"), "--timeout"),
        (("topics", "create", "\udcff"), "is no text; give it in UTF-8"),
        (("status", "--tls-key", "/dev/null"), "--tls-certificate and --tls-key belong together"),
        (("status", "--tls-ca", "/does/not/exist"), "does not exist"),
    ],
)
def test_wrong_usage_ends_with_two(
    capsys: Captured, arguments: tuple[str, ...], expected: str
) -> None:
    code, line = fail(capsys, *arguments)
    assert code == 2
    assert line.startswith("aquifer: ")
    assert expected in line
    assert line.endswith("(`--help` shows the usage)")


@pytest.mark.parametrize(
    "arguments",
    [("metadata", "import"), ("metadata", "export"), ("metadata", "export", "--apply")],
)
def test_a_kafka_cluster_that_is_not_there_is_named_with_the_way_to_say_where_it_is(
    capsys: Captured, arguments: tuple[str, ...]
) -> None:
    with hold_port() as port:
        address = f"127.0.0.1:{port.number}"
        code, line = fail(capsys, *arguments, "--bootstrap-server", address, "--timeout", "1")
    assert code == 1
    assert line.startswith(f"aquifer: the Kafka cluster at {address}: ")
    assert "say where it is with --bootstrap-server" in line


@pytest.mark.parametrize("verb", ["import", "export"])
def test_a_property_that_the_kafka_client_does_not_know_is_told(
    capsys: Captured, verb: str
) -> None:
    given = ("--bootstrap-server", "127.0.0.1:1", "--property", "nonsense=1")
    code, line = fail(capsys, "metadata", verb, *given)
    assert code == 1
    assert 'No such configuration property: "nonsense"; give properties' in line
    assert line.endswith("(INVALID_CONFIGURATION)")


def test_nothing_is_deleted_when_nobody_can_confirm(capsys: Captured) -> None:
    code, line = fail(capsys, "topics", "delete", "orders")
    assert (code, "give --yes" in line) == (2, True)


@pytest.mark.parametrize("group", [(), ("topics",), ("segments",), ("partitions",)])
def test_without_a_command_the_help_is_shown(capsys: Captured, group: tuple[str, ...]) -> None:
    assert cli.main(list(group)) == 2
    captured = capsys.readouterr()
    assert "Usage: aquifer" in captured.out
    assert captured.err == ""


def test_the_version_is_told(capsys: Captured) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("aquifer ")


def test_every_command_takes_the_shared_options(capsys: Captured) -> None:
    commands = {
        "topics": ("list", "describe", "create", "delete", "alter"),
        "segments": ("list", "describe", "verify", "history"),
        "partitions": ("list", "describe", "run-task", "pause", "resume"),
    }
    lines = [(group, name) for group, names in commands.items() for name in names]
    for line in [*lines, ("status",)]:
        assert cli.main([*line, "--help"]) == 0
        shown = capsys.readouterr().out
        for option in ("--json", "--metadata", "--manager", "--storage", "--timeout", "--tls-ca"):
            assert option in shown, (line, option)


async def test_a_located_error_keeps_class_reason_and_metadata() -> None:
    options = ConnectionOptions(
        metadata=("m:1",), manager=("a:1", "b:2"), storage=("s:1",), timeout_s=1
    )
    async with Session(options) as session:
        peer = session.peer(Role.MANAGER)
        error = StaleLeaderEpochError("epoch 3 < 4\nrefresh", metadata={"given": "3"})
        located = peer.located(error)
        assert located == StaleLeaderEpochError(
            "manager at a:1,b:2: epoch 3 < 4 refresh", metadata={"given": "3"}
        )
        late = peer.located(DeadlineExceededError("time was up"))
        assert late.message.endswith("; ask for more time with --timeout")


def test_the_cause_of_a_failed_connection_is_what_the_system_said() -> None:
    error = RemoteStorageUnavailableError(
        "failed to connect to all addresses; last error: UNKNOWN: ipv4:1.2.3.4:5: Connection refused",
        reason=ErrorReason.PEER_UNAVAILABLE,
    )
    assert cause(error) == "does not answer (Connection refused)"


async def test_replicas_are_asked_one_by_one_and_connected_once() -> None:
    options = ConnectionOptions(metadata=("m:1",), manager=("a:1", "b:2"), storage=(), timeout_s=1)
    async with Session(options) as session:
        replicas = session.replicas(Role.MANAGER)
        assert [peer.address for peer in replicas] == ["a:1", "b:2"]
        assert session.replicas(Role.MANAGER) == replicas
        assert session.peer(Role.METADATA) is session.replicas(Role.METADATA)[0]
