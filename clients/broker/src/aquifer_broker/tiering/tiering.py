"""Everything of tiered storage in a broker, made only when it is enabled (SR-1)."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

import structlog
from aquifer.broker.v1.broker_log_service_pb2_grpc import (
    add_BrokerLogServiceServicer_to_server,
)
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_core.ports import RemoteLogMetadataManager, RemoteStorageManager
from aquifer_rpc.channel import connect
from aquifer_rpc.server import GrpcServer
from aquifer_rpc.settings import GrpcClientSettings, GrpcServerSettings

from aquifer_broker.cluster.hosted_partitions import (
    HostedPartition,
    HostedPartitions,
    LeadershipListener,
)
from aquifer_broker.config.broker_config import BrokerConfig
from aquifer_broker.config.remote_keys import (
    GRPC_METADATA_MANAGER,
    GRPC_STORAGE_MANAGER,
    METADATA_PREFIX,
    STORAGE_PREFIX,
)
from aquifer_broker.config.suite_tls import client_tls, role_tls, server_tls
from aquifer_broker.handlers.hot_traffic import HotTraffic
from aquifer_broker.log.log_manager import LogManager
from aquifer_broker.tiering.announcer import Announcer
from aquifer_broker.tiering.broker_log_service import BrokerLogs
from aquifer_broker.tiering.broker_log_servicer import BrokerLogServicer
from aquifer_broker.tiering.fetch_paths import DirectFetchPath, FetchPath, ManagerFetchPath
from aquifer_broker.tiering.hosted_roles import HostedRoles
from aquifer_broker.tiering.lost_logs import LostLogs
from aquifer_broker.tiering.manager_client import ManagerClient
from aquifer_broker.tiering.plugin_properties import plugin_properties
from aquifer_broker.tiering.read_silence import ReadSilence, WatchedFetchPath
from aquifer_broker.tiering.read_yield import ReadYield
from aquifer_broker.tiering.remote_log import TieredRemoteLog
from aquifer_broker.tiering.remote_reads import RemoteReads

__all__ = ["TieringComponents"]

logger = structlog.get_logger(__name__)

_READ_DEADLINE_S: Final = 30.0
# Above what slow stores take for a read, below what clients' own timeouts allow. A read goes on meanwhile, and the next fetch gets it.
_STALLED_AFTER_S: Final = 5.0
_READ_BUDGET_BYTES: Final = 256 << 20
_LISTENER_KEY: Final = "aquifer.broker.log.service.listener"
_YIELD_KEY: Final = "aquifer.remote.fetch.max.loop.delay.ms"
_ADVERTISED_KEY: Final = "aquifer.broker.log.service.advertised"


class TieringComponents:
    """The plugin object, the client of the manager, the announcements, BrokerLogService and remote reads.

    An async context manager. Entering configures the plugin and starts everything; it does not wait for the manager. Leaving
    stops in the opposite order: announcements, serving (copies under way may finish within the drain), reads, plugin.

    Attributes:
        remote_log: For the handlers; valid while the context is open.
        read_yield: How remote reads give way; None before the start, and when they do not.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        cluster_id: str,
        logs: LogManager,
        partitions: HostedPartitions,
        storage_class: type[RemoteStorageManager],
        metadata_class: type[RemoteLogMetadataManager],
        hot: HotTraffic,
        make_yield: Callable[..., ReadYield] = ReadYield,
    ) -> None:
        """Prepares; nothing is made yet.

        Args:
            config: Of this broker, with remote storage enabled.
            cluster_id: Passed to the plugin.
            logs: The local logs.
            partitions: What is hosted here.
            storage_class: `remote.log.storage.manager.class.name`, imported and checked (SR-2).
            metadata_class: `remote.log.metadata.manager.class.name`, likewise (SR-3).
            hot: Traffic that remote reads give way to.
            make_yield: Makes what they give way by.
        """
        self._config = config
        self._cluster_id = cluster_id
        self._logs = logs
        self._partitions = partitions
        self._storage_class = storage_class
        self._metadata_class = metadata_class
        self._hot = hot
        self._make_yield = make_yield
        self.read_yield: ReadYield | None = None
        self._running = AsyncExitStack()
        self._server: GrpcServer | None = None
        self._announcer: Announcer | None = None
        self._remote_log: TieredRemoteLog | None = None

    @property
    def remote_log(self) -> TieredRemoteLog:
        """The remote part of the logs."""
        assert self._remote_log is not None, "the context is not open"
        return self._remote_log

    @property
    def registered(self) -> bool:
        """Whether the manager knew this broker last time."""
        return self._announcer is not None and self._announcer.registered

    @property
    def broker_log_address(self) -> str:
        """`host:port` as the manager reaches BrokerLogService."""
        advertised: str | None = self._config.values[_ADVERTISED_KEY]
        if advertised:
            return advertised
        host, _, port = self._config.values[_LISTENER_KEY].rpartition(":")
        bound = self._server.port if self._server is not None else int(port)
        return f"{host}:{bound}"

    async def __aenter__(self) -> "TieringComponents":
        """Starts.

        Raises:
            InvalidConfigurationError: The plugin refuses its configuration, or the listener cannot be bound.
        """
        async with AsyncExitStack() as starting:
            await self._start(starting)
            self._running = starting.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._running.aclose()

    async def _start(self, starting: AsyncExitStack) -> None:
        config = self._config
        storage = self._storage_class()
        starting.push_async_callback(storage.close)
        await storage.configure(self._storage_properties())
        metadata = self._metadata_class()
        starting.push_async_callback(metadata.close)
        await metadata.configure(self._metadata_properties())
        settings = GrpcClientSettings(tls=client_tls(config.values))
        channel = await starting.enter_async_context(
            connect(config.manager_endpoints, settings=settings)
        )
        manager = ManagerClient(channel, broker_id=config.node_id, incarnation=KafkaUuid.random())
        silence = ReadSilence(_STALLED_AFTER_S)
        read_yield = await self._read_yield(starting)
        reads = RemoteReads(
            WatchedFetchPath(self._fetch_path(manager, storage), silence),
            max_reads=config.values["remote.log.reader.max.pending.tasks"],
            budget_bytes=_READ_BUDGET_BYTES,
            deadline_s=_READ_DEADLINE_S,
            read_ahead_bytes=config.values["aquifer.remote.fetch.read.ahead.bytes"],
            read_yield=read_yield,
        )
        starting.push_async_callback(reads.close)
        roles = HostedRoles(self._partitions)
        self._server = await starting.enter_async_context(
            self._broker_log_server(BrokerLogs(roles.find, storage))
        )
        announcer = self._announcer = Announcer(
            manager,
            broker_log_address=lambda: self.broker_log_address,
            hosted=roles.roles,
            delete_when_stopped=roles.lost_tiering_with_deletion,
        )
        self._remote_log = TieredRemoteLog(manager, reads, announcer, silence)
        await starting.enter_async_context(announcer.loop)
        self._listen(announcer)
        await starting.enter_async_context(
            LostLogs(self._partitions, metadata, storage, completed=announcer.changed)
        )

    async def _read_yield(self, starting: AsyncExitStack) -> ReadYield | None:
        target_ms = self._config.values[_YIELD_KEY]
        if not target_ms:
            return None
        self.read_yield = self._make_yield(
            target_s=target_ms / 1000,
            most_reads=self._config.values["remote.log.reader.max.pending.tasks"],
            hot=self._hot,
        )
        await starting.enter_async_context(self.read_yield.loop)
        return self.read_yield

    def _storage_properties(self) -> dict[str, str]:
        properties = plugin_properties(
            self._config.storage_manager_configs(self._cluster_id), STORAGE_PREFIX
        )
        if self._config.values["remote.log.storage.manager.class.name"] == GRPC_STORAGE_MANAGER:
            return self._with_tls(properties)
        return properties

    def _metadata_properties(self) -> dict[str, str]:
        properties = plugin_properties(
            self._config.metadata_manager_configs(self._cluster_id), METADATA_PREFIX
        )
        if self._config.values["remote.log.metadata.manager.class.name"] == GRPC_METADATA_MANAGER:
            # One service keeps the facts of the cluster and of remote segments.
            properties.setdefault("endpoints", ",".join(self._config.metadata_endpoints))
            return self._with_tls(properties)
        return properties

    def _with_tls(self, properties: dict[str, str]) -> dict[str, str]:
        """TLS as to all services, unless the role has its own."""
        if any(key.startswith("tls.") for key in properties):
            return properties
        return properties | role_tls(self._config.values)

    def _fetch_path(self, manager: ManagerClient, storage: RemoteStorageManager) -> FetchPath:
        if self._config.values["aquifer.remote.fetch.path"] == "direct":
            return DirectFetchPath(manager, storage)
        return ManagerFetchPath(manager)

    def _broker_log_server(self, logs: BrokerLogs) -> GrpcServer:
        values = self._config.values
        settings = GrpcServerSettings(listen=values[_LISTENER_KEY], tls=server_tls(values))
        server = GrpcServer(settings, name="broker log")
        server.add(add_BrokerLogServiceServicer_to_server, BrokerLogServicer(logs))
        return server

    def _listen(self, announcer: Announcer) -> None:
        """Follows what is hosted. Callbacks after the end only set flags."""
        leaders: dict[TopicIdPartition, bool] = {}

        def hosted(partition: HostedPartition) -> None:
            if partition.log.tiering_enabled:
                leaders[partition.topic_id_partition] = partition.is_leader
            announcer.changed()

        def stopped(topic_id_partition: TopicIdPartition, deleted: bool) -> None:
            # Only the last leader has the remote data deleted, once.
            if leaders.pop(topic_id_partition, False) and deleted:
                announcer.delete_remote(topic_id_partition)
            announcer.changed()

        self._partitions.add_listener(LeadershipListener(on_hosted=hosted, on_stopped=stopped))
        self._logs.on_rolled(announcer.rolled)
        self._logs.on_config_changed(lambda _: announcer.changed())
