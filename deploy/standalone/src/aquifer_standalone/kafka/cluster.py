"""An Apache Kafka cluster in KRaft mode on loopback: its properties, its processes, its tools."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aquifer_core.ids import KafkaUuid

from aquifer_standalone.kafka.installation import FILES, KafkaInstallation, KafkaUnavailableError
from aquifer_standalone.kafka.properties import read_properties, write_properties
from aquifer_standalone.kafka.ready import broker_serving
from aquifer_standalone.kept_text import kept_text
from aquifer_standalone.ports import LOOPBACK, LoopbackPort, hold_ports
from aquifer_standalone.programs import run_program
from aquifer_standalone.spec import ProcessSpec

_READY_S: Final = 120.0
_STOP_S: Final = 30.0
_FORMAT_S: Final = 120.0
_SMALL: Final = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "num.network.threads": "2",
    "num.io.threads": "4",
}
"""A cluster for one machine and a few clients."""

_PLUGIN_PREFIXES: Final = ("remote.", "rsm.", "rlmm.")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """What to run.

    Attributes:
        installation: the release.
        brokers: nodes; their ids count from 1, and node 1 is the controller too.
        plugin: the jar of the plugin; None: no tiering.
        storage, metadata: `host:port` of the services that the plugin uses.
        otlp_endpoint: where the plugin's traces and metrics go, as http://host:port; None: nowhere.
        log_dirs: directories of each broker.
        properties: further properties of every broker; None takes one of the template away.
        jvm: options of every broker's JVM.
    """

    installation: KafkaInstallation
    brokers: int = 1
    plugin: Path | None = None
    storage: str = ""
    metadata: str = ""
    otlp_endpoint: str | None = None
    log_dirs: int = 1
    properties: Mapping[str, str | None] = field(default_factory=dict)
    jvm: Sequence[str] = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC")


class KafkaCluster:
    """Describes the processes of a cluster; a supervisor runs them.

    The properties of deploy/kafka are what every broker starts from.
    """

    def __init__(self, settings: KafkaSettings, root: Path) -> None:
        self.settings = settings
        self._root = root.resolve()
        self._ports = hold_ports(settings.brokers)
        self._controller = hold_ports(1)[0]
        self._jar = self._root / "aquifer-kafka-plugin.jar"
        if settings.plugin is not None:
            # A copy: brokers go on reading theirs while somebody builds a new one.
            shutil.copyfile(settings.plugin, self._jar)
        self._cluster_id = kept_text(
            self._root / "kafka-cluster.id", lambda: str(KafkaUuid.random())
        )

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` for Kafka clients."""
        return ",".join(self.address(broker_id) for broker_id in self.broker_ids)

    @property
    def broker_ids(self) -> range:
        """Ids of the brokers."""
        return range(1, self.settings.brokers + 1)

    def address(self, broker_id: int) -> str:
        """`host:port` for clients of a broker."""
        return f"{LOOPBACK}:{self._port(broker_id).number}"

    def log_dirs(self, broker_id: int) -> list[Path]:
        """Log directories of a broker."""
        base = self._root / name_of(broker_id)
        return [base / f"log-{number}" for number in range(self.settings.log_dirs)]

    def specs(self, depends_on: Sequence[str] = ()) -> list[ProcessSpec]:
        """A process for each broker: kafka-1 first, the others after it."""
        return [self._spec(broker_id, depends_on) for broker_id in self.broker_ids]

    def properties(self, broker_id: int) -> dict[str, str]:
        """Everything that a broker is configured with."""
        values: dict[str, str | None] = {**read_properties(FILES / "server.properties"), **_SMALL}
        if self.settings.plugin is None:
            values = {k: v for k, v in values.items() if not k.startswith(_PLUGIN_PREFIXES)}
        values |= self._addresses(broker_id) | self._plugin() | dict(self.settings.properties)
        return {key: value for key, value in values.items() if value is not None}

    def _port(self, broker_id: int) -> LoopbackPort:
        return self._ports[broker_id - 1]

    def _addresses(self, broker_id: int) -> dict[str, str]:
        controller = f"{LOOPBACK}:{self._controller.number}"
        listeners = f"PLAINTEXT://{self.address(broker_id)}"
        first = broker_id == 1
        if first:
            listeners += f",CONTROLLER://{controller}"
        return {
            "node.id": str(broker_id),
            "process.roles": "broker,controller" if first else "broker",
            "controller.quorum.bootstrap.servers": controller,
            "listeners": listeners,
            "advertised.listeners": listeners,
            "log.dirs": ",".join(str(folder) for folder in self.log_dirs(broker_id)),
        }

    def _plugin(self) -> dict[str, str]:
        settings = self.settings
        if settings.plugin is None:
            return {}
        found = {
            "remote.log.storage.manager.class.path": str(self._jar),
            "remote.log.metadata.manager.class.path": str(self._jar),
            "rsm.config.aquifer.storage.endpoints": settings.storage,
            "rlmm.config.aquifer.metadata.endpoints": settings.metadata,
        }
        if settings.otlp_endpoint:
            for prefix in ("rsm", "rlmm"):
                found[f"{prefix}.config.aquifer.telemetry.endpoint"] = settings.otlp_endpoint
        return found

    def _spec(self, broker_id: int, depends_on: Sequence[str]) -> ProcessSpec:
        file = self._root / f"{name_of(broker_id)}.properties"
        write_properties(file, self.properties(broker_id))
        first = broker_id == 1
        ports = [self._port(broker_id), *([self._controller] if first else [])]
        address = self.address(broker_id)
        return ProcessSpec(
            name=name_of(broker_id),
            argv=self.settings.installation.argv("kafka.Kafka", str(file), jvm=self.settings.jvm),
            cwd=self._root,
            readiness=lambda: broker_serving(address, broker_id),
            depends_on=tuple(depends_on) if first else (*depends_on, name_of(1)),
            prepare=lambda: self._format(broker_id, file),
            ports=tuple(ports),
            ready_timeout_s=_READY_S,
            stop_grace_s=_STOP_S,
        )

    async def _format(self, broker_id: int, properties: Path) -> None:
        """Give empty directories their identity, once."""
        folders = self.log_dirs(broker_id)
        if all((folder / "meta.properties").exists() for folder in folders):
            return
        kind = "--standalone" if broker_id == 1 else "--no-initial-controllers"
        argv = self.settings.installation.argv(
            "kafka.tools.StorageTool",
            *("format", "--cluster-id", self._cluster_id, "--config", str(properties)),
            *("--ignore-formatted", kind),
            jvm=("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        )
        ended = await run_program(argv, timeout_s=_FORMAT_S)
        if ended.exit_code != 0:
            raise KafkaUnavailableError(f"{name_of(broker_id)} cannot be formatted: {ended.tail}")


def name_of(broker_id: int) -> str:
    """Name of a broker's process."""
    return f"kafka-{broker_id}"
