"""The whole suite on loopback: PostgreSQL, the S3 server, the services, the broker nodes, or Apache Kafka in their place."""

import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from aquifer_standalone.kafka.cluster import KafkaCluster, KafkaSettings
from aquifer_standalone.kept_text import kept_text
from aquifer_standalone.ports import LOOPBACK, LoopbackPort, fixed_ports, hold_ports
from aquifer_standalone.postgres import EmbeddedPostgres
from aquifer_standalone.readiness import grpc_serving, kafka_serving
from aquifer_standalone.s3 import PORT_COUNT as S3_PORT_COUNT
from aquifer_standalone.s3 import EmbeddedS3
from aquifer_standalone.spec import ProcessSpec
from aquifer_standalone.supervisor import Supervisor

BUCKET: Final = "aquifer"
_ACCESS_KEY: Final = "aquifer"
# Longer than draining and sending the last telemetry takes.
_STOP_GRACE_S: Final = 45.0
_FIRST_PORTS: Final = {
    "storage": 7100,
    "metadata": 7200,
    "manager": 7300,
    "broker-log": 7400,
    "s3": 7500,
    "postgres": 7600,
    "broker": 9092,
}
"""Where everything listens when ports are fixed; brokers and their log services count up from theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSettings:
    """What to run and how.

    Attributes:
        data_dir: everything that is kept, logs included.
        brokers: number of broker nodes; their ids count from 1. With none the manager, which serves them, is left out.
        kafka: an Apache Kafka cluster that uses the storage and the metadata service through the plugin.
        stable_ports: the ports of the README instead of free ones.
        otlp_endpoint: where traces and metrics go, as http://host:port; None: nowhere.
        fsync: False trades safety against power loss for speed.
        storage, metadata, manager: further environment variables of a service.
        broker: further properties of every broker.
    """

    data_dir: Path
    brokers: int = 3
    kafka: KafkaSettings | None = None
    stable_ports: bool = False
    otlp_endpoint: str | None = None
    fsync: bool = True
    storage: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    manager: Mapping[str, str] = field(default_factory=dict)
    broker: Mapping[str, str] = field(default_factory=dict)


class Stack:
    """Owns every process of the suite; an async context manager that returns when all are ready."""

    def __init__(self, settings: StackSettings) -> None:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        self.settings = settings
        self._root = settings.data_dir.resolve()
        self._ports = _ports(settings)
        self.postgres = EmbeddedPostgres(
            self._root, self._ports["postgres"][0], fsync=settings.fsync
        )
        self.s3 = EmbeddedS3(
            self._root,
            access_key=_ACCESS_KEY,
            secret_key=kept_text(self._root / "s3.secret", lambda: secrets.token_urlsafe(32)),
            bucket=BUCKET,
            ports=self._ports["s3"],
        )
        self.kafka = self._kafka_cluster()
        self.supervisor = Supervisor(self._specs(), data_dir=self._root)

    async def __aenter__(self) -> Self:
        await self.supervisor.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.supervisor.stop()

    def address(self, name: str, number: int = 0) -> str:
        """`host:port` of a part: storage, metadata, manager, s3, postgres, broker or broker-log (with its number from 0)."""
        return f"{LOOPBACK}:{self._ports[name][number].number}"

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` for Kafka clients: of the broker nodes, or of Apache Kafka when there are none."""
        if self.kafka is not None and not self.settings.brokers:
            return self.kafka.bootstrap
        return ",".join(self.address("broker", number) for number in range(self.settings.brokers))

    def log_dir(self, broker_id: int) -> Path:
        """The log directory of a broker."""
        return self._root / f"broker-{broker_id}"

    def on_these_services(self, settings: KafkaSettings) -> KafkaSettings:
        """The settings of a Kafka cluster with the addresses of this stack's services."""
        return replace(
            settings,
            storage=self.address("storage"),
            metadata=self.address("metadata"),
            otlp_endpoint=self.settings.otlp_endpoint,
        )

    def _specs(self) -> list[ProcessSpec]:
        specs = [
            self.postgres.spec(),
            self.s3.spec(),
            self._service_spec("metadata", ("postgres",), self._metadata_environment()),
            self._service_spec("storage", ("s3",), self._storage_environment()),
        ]
        if self.settings.brokers:
            needs = ("metadata", "storage")
            specs.append(self._service_spec("manager", needs, self._manager_environment()))
            specs += [self._broker_spec(number) for number in range(self.settings.brokers)]
        if self.kafka is not None:
            specs += self.kafka.specs(depends_on=("metadata", "storage"))
        return specs

    def _kafka_cluster(self) -> KafkaCluster | None:
        if self.settings.kafka is None:
            return None
        return KafkaCluster(self.on_these_services(self.settings.kafka), self._root)

    def _service_spec(
        self, name: str, depends_on: tuple[str, ...], environment: Mapping[str, str]
    ) -> ProcessSpec:
        prefix = f"AQUIFER_{name.upper()}_"
        address = self.address(name)
        own = {f"{prefix}GRPC__LISTEN": address}
        if self.settings.otlp_endpoint:
            own[f"{prefix}TELEMETRY__OTLP_ENDPOINT"] = self.settings.otlp_endpoint
        return ProcessSpec(
            name=name,
            argv=(sys.executable, "-m", f"aquifer_{name}"),
            env={**own, **environment},
            cwd=self._root,
            readiness=lambda: grpc_serving(address),
            depends_on=depends_on,
            ports=tuple(self._ports[name]),
            stop_grace_s=_STOP_GRACE_S,
        )

    def _metadata_environment(self) -> dict[str, str]:
        return {"AQUIFER_METADATA_DATABASE__DSN": self.postgres.dsn, **self.settings.metadata}

    def _storage_environment(self) -> dict[str, str]:
        target = self.s3.target
        return {
            "AQUIFER_STORAGE_S3__ENDPOINT": target.endpoint,
            "AQUIFER_STORAGE_S3__ACCESS_KEY": target.access_key,
            "AQUIFER_STORAGE_S3__SECRET_KEY": target.secret_key,
            "AQUIFER_STORAGE_S3__BUCKET": BUCKET,
            "AQUIFER_STORAGE_S3__SECURE": "false",
            **self.settings.storage,
        }

    def _manager_environment(self) -> dict[str, str]:
        return {
            "AQUIFER_MANAGER_STORAGE__ENDPOINTS": self.address("storage"),
            "AQUIFER_MANAGER_METADATA__ENDPOINTS": self.address("metadata"),
            "AQUIFER_MANAGER_DATA_DIR": str(self._root / "manager"),
            "AQUIFER_MANAGER_DELETION_FAILURE_BOOTSTRAP_SERVERS": self.bootstrap,
            **self.settings.manager,
        }

    def _broker_spec(self, number: int) -> ProcessSpec:
        broker_id = number + 1
        properties = self._root / f"broker-{broker_id}.properties"
        values = self._broker_properties(number)
        properties.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        return ProcessSpec(
            name=f"broker-{broker_id}",
            argv=(sys.executable, "-m", "aquifer_broker", str(properties)),
            cwd=self._root,
            readiness=lambda: kafka_serving(LOOPBACK, self._ports["broker"][number].number),
            depends_on=("metadata",),
            ports=(self._ports["broker"][number], self._ports["broker-log"][number]),
            stop_grace_s=_STOP_GRACE_S,
        )

    def _broker_properties(self, number: int) -> dict[str, str]:
        broker_id = number + 1
        listener = f"PLAINTEXT://{self.address('broker', number)}"
        properties = {
            "node.id": str(broker_id),
            "listeners": listener,
            "advertised.listeners": listener,
            "log.dirs": str(self.log_dir(broker_id)),
            "group.initial.rebalance.delay.ms": "0",
            "log.retention.check.interval.ms": "1000",
            "remote.log.storage.enable": "true",
            "remote.log.storage.manager.class.name": "aquifer_client.GrpcRemoteStorageManager",
            "remote.log.storage.endpoints": self.address("storage"),
            "remote.log.metadata.manager.class.name": "aquifer_client.GrpcRemoteLogMetadataManager",
            "remote.log.metadata.endpoints": self.address("metadata"),
            "aquifer.metadata.endpoints": self.address("metadata"),
            "aquifer.manager.endpoints": self.address("manager"),
            "aquifer.broker.log.service.listener": self.address("broker-log", number),
        }
        if self.settings.otlp_endpoint:
            properties["aquifer.telemetry.endpoint"] = self.settings.otlp_endpoint
        return properties | dict(self.settings.broker)


def _ports(settings: StackSettings) -> dict[str, list[LoopbackPort]]:
    counts = {
        "storage": 1,
        "metadata": 1,
        "manager": min(1, settings.brokers),
        "broker-log": settings.brokers,
        "s3": S3_PORT_COUNT,
        "postgres": 1,
        "broker": settings.brokers,
    }
    if settings.stable_ports:
        return {name: fixed_ports(_FIRST_PORTS[name], count) for name, count in counts.items()}
    return {name: hold_ports(count) for name, count in counts.items()}
