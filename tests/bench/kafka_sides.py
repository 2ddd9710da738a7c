"""One cluster or node under measure: where clients connect, where its log lies, which processes work for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import psutil
from aquifer_broker.protocol.versions import ApiKey
from aquifer_standalone.process import ChildProcess
from fixtures.kafka_wire import KafkaWire
from fixtures.polling import eventually
from kio.schema.errors import ErrorCode

_VERSION: Final = 9
_LATEST_TIERED: Final = -5
_EARLIEST_LOCAL: Final = -4
_DEADLINE_S: Final = 300.0
_POLL_S: Final = 0.1
_ASK: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Its only broker leads everything."""

    name: str
    bootstrap: str
    log_dir: Path
    processes: Sequence[ChildProcess]

    def cpu_s(self) -> float:
        """Processor time, user and system, of its processes and all their children so far."""
        return sum(_cpu_s(child.pid) for child in self.processes if child.pid is not None)

    async def copied(self, topic: str, partitions: int) -> dict[int, int]:
        """Wait until every rolled segment is remote: partition -> base offset of its active segment."""

        async def found() -> dict[int, int]:
            bases = {number: self._bases(topic, number)[-1] for number in range(partitions)}
            tiered = await self._offsets(topic, partitions, _LATEST_TIERED)
            assert all(0 < bases[n] == tiered[n] + 1 for n in bases), (bases, tiered)
            return bases

        return await eventually(found, timeout_s=_DEADLINE_S, interval_s=_POLL_S)

    async def dropped(self, topic: str, starts: dict[int, int]) -> None:
        """Wait until the partitions are local only from these offsets on."""

        async def gone() -> bool:
            local = await self._offsets(topic, len(starts), _EARLIEST_LOCAL)
            kept = {number: self._bases(topic, number)[0] for number in starts}
            return local == starts == kept

        await eventually(gone, timeout_s=_DEADLINE_S, interval_s=_POLL_S)

    def _bases(self, topic: str, partition: int) -> list[int]:
        folder = self.log_dir / f"{topic}-{partition}"
        return sorted(int(file.stem) for file in folder.glob("*.log"))

    async def _offsets(self, topic: str, partitions: int, timestamp: int) -> dict[int, int]:
        asked = [
            {"partition_index": number, "timestamp": timestamp, "current_leader_epoch": -1}
            for number in range(partitions)
        ]
        request = {
            "replica_id": -1,
            "isolation_level": 0,
            "timeout": _ASK,
            "topics": [{"name": topic, "partitions": asked}],
        }
        async with KafkaWire(int(self.bootstrap.rpartition(":")[2])) as wire:
            answer = await wire.ask(ApiKey.LIST_OFFSETS, _VERSION, request)
        found = {each.partition_index: each for each in answer.topics[0].partitions}
        errors = [each.error_code for each in found.values()]
        assert set(errors) == {ErrorCode.none}, errors
        return {number: each.offset for number, each in found.items()}


def _cpu_s(pid: int) -> float:
    process = psutil.Process(pid)
    total = 0.0
    for each in (process, *process.children(recursive=True)):
        try:
            times = each.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total
