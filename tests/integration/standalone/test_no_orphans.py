"""A supervisor that is killed without a chance to clean up takes all of its processes with it."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from fixtures.polling import eventually_sync

_SUPERVISOR = textwrap.dedent("""
    import asyncio, json, sys
    from pathlib import Path
    from aquifer_standalone.ports import hold_port
    from aquifer_standalone.postgres import EmbeddedPostgres
    from aquifer_standalone.s3 import EmbeddedS3
    from aquifer_standalone.supervisor import Supervisor

    async def main(root):
        postgres = EmbeddedPostgres(root, hold_port(), fsync=False)
        s3 = EmbeddedS3(root, access_key="access", secret_key="secret" * 4, bucket="segments")
        async with Supervisor([postgres.spec(), s3.spec()], data_dir=root) as supervisor:
            pids = {status.name: status.pid for status in supervisor.status()}
            (root / "pids.partial").write_text(json.dumps(pids))
            (root / "pids.partial").rename(root / "pids.json")
            await asyncio.Event().wait()

    asyncio.run(main(Path(sys.argv[1])))
""")


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", _SUPERVISOR, str(tmp_path)])
    yield process
    process.kill()
    process.wait(10)


def test_a_killed_supervisor_leaves_no_orphan(
    tmp_path: Path, supervisor: subprocess.Popen[bytes]
) -> None:
    eventually_sync((tmp_path / "pids.json").exists, timeout_s=60)
    pids = json.loads((tmp_path / "pids.json").read_text())
    family = psutil.Process(supervisor.pid).children(recursive=True)
    assert set(pids.values()) <= {process.pid for process in family}
    assert len(family) > len(pids), "PostgreSQL has processes of its own"
    supervisor.kill()
    supervisor.wait(10)
    eventually_sync(lambda: not any(_alive(process) for process in family), timeout_s=60)
