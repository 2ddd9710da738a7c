"""A broker uses as many open files as the system allows it."""

import resource
import sys
from pathlib import Path
from subprocess import run

_MANY_LOGS = """
import asyncio, resource, sys
from pathlib import Path
from aquifer_broker.log.log_manager import LogManager
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from fixtures.broker_logs import client_batch

async def main():
    async with LogManager([Path(sys.argv[1])], broker_id=1, cluster_id="c") as manager:
        for partition in range(60):
            tip = TopicIdPartition(KafkaUuid(bytes(16)), "events", partition)
            log = await manager.open_log(tip, is_new=True)
            await log.append(client_batch(), leader_epoch=0)
        print([online for _, _, online in manager.log_dir_states()])

_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (60, hard))
asyncio.run(main())
"""


def test_a_broker_is_not_bound_by_the_limit_that_shells_begin_with(tmp_path: Path) -> None:
    """Each log holds a file open; without one more, the disk seems to fail and the log dir goes offline."""
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] > 200, "the test needs a higher hard limit"

    done = run(
        [sys.executable, "-c", _MANY_LOGS, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
    )

    assert done.stdout.splitlines()[-1] == "[True]", done.stdout + done.stderr
