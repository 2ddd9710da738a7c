"""The supervisor starts processes in order, keeps them running and leaves none behind."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from aquifer_core.errors import InvalidConfigurationError
from aquifer_standalone.life import ProcessFailedError
from aquifer_standalone.process import ProcessState
from aquifer_standalone.spec import ProcessSpec, Readiness, RestartPolicy
from aquifer_standalone.supervisor import Supervisor
from fixtures.polling import eventually

# Writes what happens to it into the journal it is given, and runs until it is told to stop.
_PROGRAM = """
import signal, sys
journal, name, on_stop = sys.argv[1:]
def write(event):
    with open(journal, "a") as file:
        file.write(f"{name} {event}\\n")
def stop(*_):
    write("stopped")
    if on_stop == "obey":
        sys.exit(0)
signal.signal(signal.SIGTERM, stop)
write("started")
print(f"{name} speaks", flush=True)
while True:
    signal.pause()
"""
_QUICK = RestartPolicy(initial_s=0.02, max_s=0.1)


class Journal:
    """What the programs of a test did, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def events(self) -> list[str]:
        return self.path.read_text().splitlines()

    def count(self, event: str) -> int:
        return self.events().count(event)

    def has(self, *events: str) -> Readiness:
        async def asked() -> bool:
            return set(events) <= set(self.events())

        return asked

    def program(
        self,
        name: str,
        *,
        depends_on: tuple[str, ...] = (),
        readiness: Readiness | None = None,
        on_stop: str = "obey",
        stop_grace_s: float = 10.0,
        ready_timeout_s: float = 60.0,
    ) -> ProcessSpec:
        return ProcessSpec(
            name=name,
            argv=(sys.executable, "-S", "-E", "-c", _PROGRAM, str(self.path), name, on_stop),
            readiness=readiness or self.has(f"{name} started"),
            depends_on=depends_on,
            restart=_QUICK,
            stop_grace_s=stop_grace_s,
            ready_timeout_s=ready_timeout_s,
        )


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


async def test_dependencies_start_first_and_stop_last(tmp_path: Path, journal: Journal) -> None:
    specs = [
        journal.program("broker", depends_on=("manager",)),
        journal.program("manager", depends_on=("store", "database")),
        journal.program("store"),
        journal.program("database"),
    ]
    async with Supervisor(specs, data_dir=tmp_path) as supervisor:
        assert {status.state for status in supervisor.status()} == {ProcessState.READY}
        assert [status.name for status in supervisor.status()] == [spec.name for spec in specs]
    started, stopped = journal.events()[:4], journal.events()[4:]
    assert started[2:] == ["manager started", "broker started"]
    assert stopped[:2] == ["broker stopped", "manager stopped"]
    assert {status.state for status in supervisor.status()} == {ProcessState.STOPPED}
    assert all(status.pid is None for status in supervisor.status())


async def test_a_dependent_waits_until_its_dependency_is_ready(
    tmp_path: Path, journal: Journal
) -> None:
    gate = tmp_path / "open"
    seen: list[list[str]] = []

    async def gated() -> bool:
        seen.append(journal.events())
        if len(seen) > 5:
            gate.touch()
        return gate.exists()

    specs = [
        journal.program("broker", depends_on=("store",)),
        journal.program("store", readiness=gated),
    ]
    async with Supervisor(specs, data_dir=tmp_path):
        assert all("broker started" not in events for events in seen)
        assert journal.count("broker started") == 1


async def test_independent_processes_start_at_the_same_time(
    tmp_path: Path, journal: Journal
) -> None:
    both = journal.has("store started", "database started")
    specs = [
        journal.program("store", readiness=both),
        journal.program("database", readiness=both),
    ]
    async with Supervisor(specs, data_dir=tmp_path) as supervisor:
        assert {status.restarts for status in supervisor.status()} == {0}


async def test_a_crashed_process_comes_back_and_the_others_stay(
    tmp_path: Path, journal: Journal
) -> None:
    specs = [journal.program("store"), journal.program("broker", depends_on=("store",))]
    async with Supervisor(specs, data_dir=tmp_path) as supervisor:
        store, broker = supervisor.child("store"), supervisor.child("broker")
        before, bystander = store.pid, broker.pid
        store.signal(signal.SIGKILL)
        await eventually(lambda: journal.count("store started") == 2)
        await eventually(lambda: store.state is ProcessState.READY)
        assert store.pid not in {before, None}
        assert store.restarts == 1
        assert broker.pid == bystander
        log = tmp_path / "logs" / "store.log"
        await eventually(lambda: log.read_text().splitlines() == ["store speaks", "store speaks"])


async def test_a_process_that_exits_at_once_fails_the_start_with_its_log(
    tmp_path: Path, journal: Journal
) -> None:
    broken = ProcessSpec(
        name="broken",
        argv=(sys.executable, "-S", "-E", "-c", "raise SystemExit('no such setting')"),
        readiness=journal.has("never"),
        restart=_QUICK,
    )
    supervisor = Supervisor([journal.program("store"), broken], data_dir=tmp_path)
    with pytest.raises(ProcessFailedError, match=r"(?s)exited with code 1.*no such setting"):
        await supervisor.start()
    assert all(status.pid is None for status in supervisor.status())
    assert _processes_of(journal) == []


async def test_a_process_that_is_never_ready_fails_the_start_and_is_ended(
    tmp_path: Path, journal: Journal
) -> None:
    spec = journal.program("store", readiness=journal.has("never"), ready_timeout_s=0.5)
    with pytest.raises(ProcessFailedError, match="store is not ready"):
        await Supervisor([spec], data_dir=tmp_path).start()
    assert _processes_of(journal) == []


async def test_a_process_that_ignores_the_stop_signal_is_killed(
    tmp_path: Path, journal: Journal
) -> None:
    spec = journal.program("store", on_stop="ignore", stop_grace_s=3)
    async with Supervisor([spec], data_dir=tmp_path):
        pass
    assert journal.events() == ["store started", "store stopped"]
    assert _processes_of(journal) == []


async def test_what_a_process_itself_started_ends_with_it(tmp_path: Path, journal: Journal) -> None:
    outer = (
        "import subprocess, sys; "
        "subprocess.Popen([sys.executable, '-S', '-c', *sys.argv[1:]]); sys.stdin.close(); "
        "import signal; signal.pause()"
    )
    arguments = (_PROGRAM, str(journal.path), "inner", "ignore")
    spec = ProcessSpec(
        name="outer",
        argv=(sys.executable, "-S", "-E", "-c", outer, *arguments),
        readiness=journal.has("inner started"),
    )
    async with Supervisor([spec], data_dir=tmp_path):
        assert len(_processes_of(journal)) == 2
    await eventually(lambda: _processes_of(journal) == [])


async def test_two_supervisors_do_not_share_a_data_folder(tmp_path: Path, journal: Journal) -> None:
    async with Supervisor([journal.program("store")], data_dir=tmp_path):
        with pytest.raises(InvalidConfigurationError, match="another supervisor"):
            await Supervisor([journal.program("broker")], data_dir=tmp_path).start()
        assert len(_processes_of(journal)) == 1
    async with Supervisor([journal.program("broker")], data_dir=tmp_path):
        assert journal.count("broker started") == 1


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([("store", ()), ("store", ())], "two processes"),
        ([("store", ("database",))], "nothing is named database"),
        ([("store", ("broker",)), ("broker", ("store",))], "wait for each other"),
    ],
)
def test_an_impossible_set_of_processes_is_refused(
    tmp_path: Path, journal: Journal, names: list[tuple[str, tuple[str, ...]]], text: str
) -> None:
    specs = [journal.program(name, depends_on=needs) for name, needs in names]
    with pytest.raises(InvalidConfigurationError, match=text):
        Supervisor(specs, data_dir=tmp_path)


def _processes_of(journal: Journal) -> list[int]:
    """Ids of the living processes that were given this journal."""

    def given(process: psutil.Process) -> bool:
        return str(journal.path) in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE

    return [process.pid for process in psutil.process_iter() if _holds(given, process)]


def _holds(question: Callable[[psutil.Process], bool], process: psutil.Process) -> bool:
    try:
        return question(process)
    except psutil.NoSuchProcess:
        return False
