"""Apache Kafka with the plugin; beside it Aquifer's broker node, and Kafka with a peer of the plugin.

The same load, the same client, the same store, one run. Without the peer's jars its figures are left out (see bench.kafka_peer).
"""

import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from aquifer_standalone.kafka.cluster import KafkaSettings, name_of
from aquifer_standalone.kafka.installation import KafkaUnavailableError, install
from aquifer_standalone.kafka.plugin import plugin_jar
from aquifer_standalone.stack import Stack, StackSettings
from aquifer_standalone.supervisor import Supervisor
from bench.kafka_peer import peer_cluster, peer_jars
from bench.kafka_rounds import Found, measure_sides, median, ratio
from bench.kafka_sides import Side
from rich.console import Console

_INTERVAL_MS: Final = "500"
_QUICK: Final = {
    "remote.log.manager.task.interval.ms": _INTERVAL_MS,
    "log.retention.check.interval.ms": _INTERVAL_MS,
    "log.initial.task.delay.ms": _INTERVAL_MS,
    "log.segment.delete.delay.ms": "1000",
}
_FIGURES: Final = (
    "produce_mb_s",
    "local_consume_mb_s",
    "copy_mb_s",
    "cold_consume_mb_s",
    "first_byte_ms_p50",
    "copy_cpu_s_per_gib",
    "cold_cpu_s_per_gib",
)
_OF_PEER: Final = {
    "copy_peer_mb_s": "copy_mb_s",
    "cold_peer_mb_s": "cold_consume_mb_s",
    "first_byte_peer_ms_p50": "first_byte_ms_p50",
    "copy_peer_cpu_s_per_gib": "copy_cpu_s_per_gib",
    "cold_peer_cpu_s_per_gib": "cold_cpu_s_per_gib",
}
_OVER_PEER: Final = {
    "copy_over_peer": "copy_mb_s",
    "cold_over_peer": "cold_consume_mb_s",
    "first_byte_over_peer": "first_byte_ms_p50",
}
_OVER_KAFKA: Final = {
    "broker.hot_produce_over_kafka": "produce_mb_s",
    "broker.hot_consume_over_kafka": "local_consume_mb_s",
    "broker.cold_consume_over_kafka": "cold_consume_mb_s",
}


async def measure() -> Mapping[str, float]:
    try:
        kafka = KafkaSettings(
            installation=await install(), plugin=await plugin_jar(), properties=_QUICK
        )
    except KafkaUnavailableError as error:
        Console(stderr=True).print(f"kafka is left out: {error}")
        return {}
    folder = Path(tempfile.mkdtemp(prefix="aquifer-bench-"))
    settings = StackSettings(
        data_dir=folder / "suite",
        brokers=1,
        kafka=kafka,
        manager={"AQUIFER_MANAGER_TASK_INTERVAL_MS": _INTERVAL_MS},
    )
    try:
        async with Stack(settings) as suite, _peer(suite, kafka, folder / "peer") as peers:
            found = await measure_sides([_plugin(suite), *peers, _broker(suite)])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _figures(found)


def _plugin(suite: Stack) -> Side:
    assert suite.kafka is not None
    names = ["storage", "metadata", "postgres", "s3", name_of(1)]
    [log_dir] = suite.kafka.log_dirs(1)
    return Side(
        name="kafka",
        bootstrap=suite.kafka.bootstrap,
        log_dir=log_dir,
        processes=[suite.supervisor.child(name) for name in names],
    )


def _broker(suite: Stack) -> Side:
    names = ["storage", "metadata", "postgres", "s3", "manager", "broker-1"]
    return Side(
        name="broker",
        bootstrap=suite.bootstrap,
        log_dir=suite.log_dir(1),
        processes=[suite.supervisor.child(name) for name in names],
    )


@asynccontextmanager
async def _peer(suite: Stack, kafka: KafkaSettings, root: Path) -> AsyncIterator[Sequence[Side]]:
    """The peer's side, or none where its jars cannot be had."""
    try:
        jars = await peer_jars()
    except KafkaUnavailableError as error:
        Console(stderr=True).print(f"kafka's peer is left out: {error}", soft_wrap=True)
        yield ()
        return
    cluster = peer_cluster(kafka, suite.s3.target, root, jars)
    [log_dir] = cluster.log_dirs(1)
    async with Supervisor(cluster.specs(), data_dir=root) as running:
        processes = [running.child(name_of(1)), suite.supervisor.child("s3")]
        yield [Side(name="peer", bootstrap=cluster.bootstrap, log_dir=log_dir, processes=processes)]


def _figures(found: Mapping[str, Sequence[Found]]) -> dict[str, float]:
    kafka, broker, peer = found["kafka"], found["broker"], found.get("peer")
    figures = {figure: median(kafka, figure) for figure in _FIGURES}
    local = figures["local_consume_mb_s"]
    figures["copy_over_local_consume"] = figures["copy_mb_s"] / local
    figures["cold_over_local_consume"] = figures["cold_consume_mb_s"] / local
    figures |= {shown: ratio(broker, kafka, figure) for shown, figure in _OVER_KAFKA.items()}
    if peer is not None:
        figures |= {shown: median(peer, figure) for shown, figure in _OF_PEER.items()}
        figures |= {shown: ratio(kafka, peer, figure) for shown, figure in _OVER_PEER.items()}
    return figures
