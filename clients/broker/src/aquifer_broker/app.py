"""Composition root of a broker node."""

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import structlog
from aquifer_core.clock import SystemClock
from aquifer_core.errors import InvalidConfigurationError
from aquifer_core.ids import KafkaUuid
from aquifer_rpc.channel import connect
from aquifer_rpc.settings import GrpcClientSettings
from aquifer_rpc.supervised import SupervisedLoop

from aquifer_broker.cluster.hosted_partitions import HostedPartitions
from aquifer_broker.cluster.metadata_client import GrpcClusterMetadata
from aquifer_broker.cluster.metadata_link import BrokerLease, ClusterWatch
from aquifer_broker.cluster.ports import ClusterMetadata
from aquifer_broker.cluster.view import BrokerInfo, ClusterChange, ClusterView
from aquifer_broker.config.broker_config import BrokerConfig
from aquifer_broker.config.plugins import Plugins, check_plugins
from aquifer_broker.config.suite_tls import client_tls
from aquifer_broker.coordination.group_coordinator import GroupCoordinator
from aquifer_broker.coordination.group_values import GroupSettings
from aquifer_broker.coordination.offset_cleanup import OffsetCleanup
from aquifer_broker.coordination.producer_ids import ProducerIdAllocator
from aquifer_broker.handlers.registry import build_handlers
from aquifer_broker.handlers.services import BrokerServices
from aquifer_broker.handlers.topic_creation import TopicCreation
from aquifer_broker.listening import endpoints_told, listen
from aquifer_broker.log.log_maintenance import LogManagerSettings
from aquifer_broker.log.log_manager import LogManager
from aquifer_broker.protocol.budget import ResponseBudget
from aquifer_broker.protocol.client import Client, Reply
from aquifer_broker.protocol.dispatch import Dispatcher
from aquifer_broker.protocol.server import KafkaServer
from aquifer_broker.protocol.tls import ListenerTls

if TYPE_CHECKING:
    from aquifer_broker.tiering.tiering import TieringComponents

__all__ = ["BrokerNode"]

logger = structlog.get_logger(__name__)

_REGISTRATION_WAIT_S: Final = 10.0


class BrokerNode:
    """A broker; an async context manager that is entered once it serves, and drained when it is left.

    `stopping` is set when it has to be left, `superseded` when another process has its id.

    The order of leaving: no longer registered (its leadership moves), connections drained, logs closed, link closed.
    """

    def __init__(self, config: BrokerConfig, *, metadata: ClusterMetadata | None = None) -> None:
        """`metadata` None: the service at `aquifer.metadata.endpoints`."""
        self.config = config
        self.view = ClusterView()
        self.servers: dict[str, KafkaServer] = {}
        self.stopping = asyncio.Event()
        self.superseded = False
        self._serving = asyncio.Event()
        self._metadata = metadata
        self._plugins: Plugins | None = None
        self._tls: ListenerTls | None = None
        self._made_services: BrokerServices | None = None
        self._running = AsyncExitStack()

    async def __aenter__(self) -> "BrokerNode":
        for key in self.config.unknown_keys:
            logger.warning("unknown_key", key=key)
        for key, instead in self.config.keys_without_effect.items():
            logger.warning("key_without_effect", key=key, set_instead=instead)
        self._plugins = check_plugins(self.config)
        if "SSL" in self.config.security_protocols.values():
            self._tls = ListenerTls(self.config.values.get)
        async with AsyncExitStack() as starting:
            await self._start(starting)
            self._running = starting.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._running.aclose()
        logger.info("broker_stopped")

    @property
    def services(self) -> BrokerServices:
        """The parts of the running broker."""
        assert self._made_services is not None, "the context is not open"
        return self._made_services

    @property
    def groups(self) -> GroupCoordinator:
        """Consumer groups coordinated here."""
        return self.services.groups

    def port(self, listener: str) -> int:
        """The bound port of a listener."""
        return self.servers[listener].port

    async def _start(self, starting: AsyncExitStack) -> None:
        metadata = await self._connect(starting)
        await starting.enter_async_context(ClusterWatch(metadata, self.view))
        # Retention runs while logs are opened, so the first of them has to have what is in force.
        config = self._with_dynamic()
        logs = await starting.enter_async_context(self._log_manager(config))
        partitions = HostedPartitions(
            node_id=config.node_id,
            view=self.view,
            logs=logs,
            defaults=config.log_defaults,
            remote_storage=self._plugins is not None,
        )
        services = self._made_services = self._services(config, metadata, logs, partitions)
        self._follow_dynamic_configs(services, partitions)
        await partitions.start()
        await starting.enter_async_context(partitions.loop)
        tiering = await self._tiering(starting, services)
        services.remote = tiering.remote_log if tiering is not None else None
        await self._clean_offsets(starting, services)
        await self._listen(starting, services)
        starting.callback(self._serving.set)
        # Before the connections are drained, so that nobody waits there for a rebalance.
        starting.callback(services.groups.close)
        broker = await self._describe(
            logs, tiering.broker_log_address if tiering is not None else ""
        )
        lease = await starting.enter_async_context(
            BrokerLease(
                metadata,
                broker,
                on_registered=services.groups.registered_as,
                on_superseded=self._superseded,
            )
        )
        await self._await_registration(lease, partitions)
        logger.info(
            "broker_ready",
            node_id=self.config.node_id,
            listeners={name: server.port for name, server in self.servers.items()},
        )

    async def _connect(self, starting: AsyncExitStack) -> ClusterMetadata:
        if self._metadata is not None:
            return self._metadata
        settings = GrpcClientSettings(tls=client_tls(self.config.values))
        channel = await starting.enter_async_context(
            connect(self.config.metadata_endpoints, settings=settings)
        )
        return GrpcClusterMetadata(channel, deadline_s=self.config.request_timeout_ms / 1000)

    def _log_manager(self, config: BrokerConfig) -> LogManager:
        values = config.values
        return LogManager(
            config.log_dirs,
            broker_id=config.node_id,
            cluster_id=self.view.cluster_id or "",
            default_config=config.log_defaults,
            settings=LogManagerSettings(
                retention_check_interval_ms=values["log.retention.check.interval.ms"],
                checkpoint_interval_ms=values["log.flush.offset.checkpoint.interval.ms"],
                flush_scheduler_interval_ms=values["log.flush.scheduler.interval.ms"],
                producer_id_expiration_ms=values["producer.id.expiration.ms"],
            ),
            lost_log_dirs=config.lost_log_dirs,
        )

    def _superseded(self) -> None:
        self.superseded = True
        self.stopping.set()

    async def _await_registration(self, lease: BrokerLease, partitions: HostedPartitions) -> None:
        """Serves once this broker sees itself, or clients would be told of a cluster without it."""

        def visible() -> bool:
            known = self.view.brokers.get(self.config.node_id)
            return known is not None and known.alive and known.broker_epoch >= lease.broker_epoch

        while not await self.view.wait_until(visible, _REGISTRATION_WAIT_S):
            logger.warning("waiting_for_registration", broker_epoch=lease.broker_epoch)
        await partitions.wait_settled(_REGISTRATION_WAIT_S)
        self._serving.set()

    async def _tiering(
        self, starting: AsyncExitStack, services: BrokerServices
    ) -> "TieringComponents | None":
        """Everything of tiering; None when it is disabled, and then nothing of it is even imported (SR-1)."""
        if self._plugins is None:
            return None
        from aquifer_broker.tiering.tiering import TieringComponents  # noqa: PLC0415

        return await starting.enter_async_context(
            TieringComponents(
                config=self.config,
                cluster_id=self.view.cluster_id or "",
                logs=services.logs,
                partitions=services.partitions,
                storage_class=self._plugins[0],
                metadata_class=self._plugins[1],
                hot=services.hot,
            )
        )

    def _services(
        self,
        config: BrokerConfig,
        metadata: ClusterMetadata,
        logs: LogManager,
        partitions: HostedPartitions,
    ) -> BrokerServices:
        values = config.values
        return BrokerServices(
            config=config,
            clock=SystemClock(),
            view=self.view,
            metadata=metadata,
            logs=logs,
            partitions=partitions,
            groups=GroupCoordinator(
                node_id=self.config.node_id,
                view=self.view,
                offsets=metadata,
                settings=GroupSettings(
                    min_session_timeout_ms=values["group.min.session.timeout.ms"],
                    max_session_timeout_ms=values["group.max.session.timeout.ms"],
                    initial_rebalance_delay_ms=values["group.initial.rebalance.delay.ms"],
                    max_size=values["group.max.size"],
                ),
            ),
            producer_ids=ProducerIdAllocator(metadata, self.config.node_id),
            response_budget=ResponseBudget(self.config.response_budget_bytes),
        )

    def _follow_dynamic_configs(
        self, services: BrokerServices, partitions: HostedPartitions
    ) -> None:
        def apply() -> None:
            services.config = self._with_dynamic()
            partitions.update_defaults(services.config.log_defaults)

        def follow(change: ClusterChange) -> None:
            if change.configs_changed:
                apply()

        self.view.on_change(follow)
        # What changed while the log dirs were read.
        apply()

    def _with_dynamic(self) -> BrokerConfig:
        """Takes over what can be; a stored setting that this version refuses must not keep the others from counting."""
        taken: dict[str, str] = {}
        config = self.config
        for key, value in sorted(self.view.broker_configs(self.config.node_id).items()):
            try:
                config = self.config.with_dynamic({**taken, key: value})
                taken[key] = value
            except InvalidConfigurationError as error:
                logger.warning("dynamic_config_ignored", key=key, error=str(error))
        return config

    async def _clean_offsets(self, starting: AsyncExitStack, services: BrokerServices) -> None:
        values = self.config.values
        cleanup = OffsetCleanup(
            groups=services.groups,
            view=self.view,
            clock=services.clock,
            retention_ms=values["offsets.retention.minutes"] * 60_000,
        )
        loop = SupervisedLoop(
            "offset cleanup",
            cleanup.run,
            interval_s=values["offsets.retention.check.interval.ms"] / 1000,
        )
        await starting.enter_async_context(loop)
        cleanup.on_deleted_topics(loop.wake)

    async def _listen(self, starting: AsyncExitStack, services: BrokerServices) -> None:
        creation = await starting.enter_async_context(TopicCreation(services))
        dispatch = Dispatcher(
            build_handlers(services, creation), response_budget=services.response_budget
        )

        async def dispatch_when_serving(frame: memoryview, client: Client) -> Reply | None:
            await self._serving.wait()
            return await dispatch(frame, client)

        self.servers = await listen(starting, dispatch_when_serving, self.config, self._tls)

    async def _describe(self, logs: LogManager, broker_log_address: str) -> BrokerInfo:
        return BrokerInfo(
            broker_id=self.config.node_id,
            incarnation=str(KafkaUuid.random()),
            endpoints=await endpoints_told(
                self.config, {name: server.port for name, server in self.servers.items()}
            ),
            rack=self.config.values["broker.rack"] or "",
            broker_log_address=broker_log_address,
            log_dirs=tuple(str(directory_id) for _, directory_id, _ in logs.log_dir_states()),
        )
