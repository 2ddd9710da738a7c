"""Puts the service together; the only place that names concrete adapters."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import structlog
from aquifer.metadata.v1.cluster_metadata_service_pb2_grpc import (
    add_ClusterMetadataServiceServicer_to_server,
)
from aquifer.metadata.v1.remote_log_metadata_service_pb2_grpc import (
    add_RemoteLogMetadataServiceServicer_to_server,
)
from aquifer_core.clock import SystemClock
from aquifer_rpc.garbage import collect_less_often
from aquifer_rpc.server import GrpcServer
from aquifer_rpc.supervised import SupervisedLoop

from aquifer_metadata.adapters.managers import current_trace_id
from aquifer_metadata.adapters.postgres.change_signal import ChangeSignal
from aquifer_metadata.adapters.postgres.cluster_brokers import SqlBrokerStore
from aquifer_metadata.adapters.postgres.cluster_configs import SqlConfigStore
from aquifer_metadata.adapters.postgres.cluster_groups import SqlGroupStore
from aquifer_metadata.adapters.postgres.cluster_log import initialize_cluster
from aquifer_metadata.adapters.postgres.cluster_partitions import SqlPartitionStore
from aquifer_metadata.adapters.postgres.cluster_topics import SqlTopicStore
from aquifer_metadata.adapters.postgres.cluster_transactions import SqlTransactionStore
from aquifer_metadata.adapters.postgres.cluster_watch import SqlClusterWatch
from aquifer_metadata.adapters.postgres.database import Database, DatabaseOptions
from aquifer_metadata.adapters.postgres.new_partitions import TopicDefaults
from aquifer_metadata.adapters.postgres.remote_log_metadata_manager import (
    PostgresRemoteLogMetadataManager,
)
from aquifer_metadata.adapters.postgres.schema import check_schema, migrate
from aquifer_metadata.adapters.postgres.tracing import trace_statements
from aquifer_metadata.domain.lease_expiry import LeaseWatchman
from aquifer_metadata.domain.ports import BrokerStore
from aquifer_metadata.servicer.cluster_metadata_servicer import (
    ClusterMetadataServicer,
    ClusterStores,
)
from aquifer_metadata.servicer.remote_log_history_servicer import RemoteLogHistoryServicer
from aquifer_metadata.settings import MetadataSettings

logger = structlog.get_logger(__name__)

_DAY_MS = 24 * 3600 * 1000
_ENDLESS_METHODS = (
    "/aquifer.metadata.v1.ClusterMetadataService/WatchClusterMetadata",
    "/aquifer.metadata.v1.RemoteLogMetadataService/WatchPartition",
)


async def serve(settings: MetadataSettings) -> None:
    """Serves until SIGTERM or SIGINT."""
    collect_less_often()
    async with running_server(settings) as server:
        await server.run_until_signal()


async def migrate_only(settings: MetadataSettings, revision: str = "head") -> None:
    """Brings the schema up to date, or to another revision, and ends."""
    await migrate(database_options(settings), revision)


@asynccontextmanager
async def running_server(settings: MetadataSettings) -> AsyncIterator[GrpcServer]:
    """The whole service, started; `port` of the server says where."""
    options = database_options(settings)
    if settings.database.auto_migrate:
        await migrate(options)
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(Database(options))
        trace_statements(database.engine.sync_engine)
        await check_schema(database)
        await initialize_cluster(database)
        signal = await stack.enter_async_context(ChangeSignal(database))
        stores = _cluster_stores(settings, database, signal)
        server = GrpcServer(
            settings.grpc,
            name="metadata",
            probes={"postgresql": database.ping},
            endless_methods=_ENDLESS_METHODS,
        )
        server.add(add_ClusterMetadataServiceServicer_to_server, ClusterMetadataServicer(stores))
        manager = _remote_log_manager(settings, database, signal)
        server.add(
            add_RemoteLogMetadataServiceServicer_to_server,
            RemoteLogHistoryServicer(manager, manager.past),
        )
        await stack.enter_async_context(_lease_loop(settings, stores.brokers))
        for loop in _history_loops(settings, manager):
            await stack.enter_async_context(loop)
        yield await stack.enter_async_context(server)


def database_options(settings: MetadataSettings) -> DatabaseOptions:
    """The settings as the adapter takes them."""
    database = settings.database
    return DatabaseOptions(
        dsn=database.dsn.get_secret_value(),
        **database.model_dump(exclude={"auto_migrate", "dsn"}),
    )


def _cluster_stores(
    settings: MetadataSettings, database: Database, signal: ChangeSignal
) -> ClusterStores:
    cluster = settings.cluster
    defaults = TopicDefaults(
        num_partitions=cluster.default_partitions,
        replication_factor=cluster.default_replication_factor,
        max_partitions=cluster.max_partitions_per_topic,
        max_replication_factor=cluster.max_replication_factor,
    )
    return ClusterStores(
        brokers=SqlBrokerStore(database, signal, lease_ms=cluster.broker_lease_ms),
        topics=SqlTopicStore(
            database, signal, defaults, clock=SystemClock(), trace_id=current_trace_id
        ),
        configs=SqlConfigStore(database, signal, clock=SystemClock(), trace_id=current_trace_id),
        partitions=SqlPartitionStore(
            database, signal, max_replication_factor=cluster.max_replication_factor
        ),
        groups=SqlGroupStore(database),
        transactions=SqlTransactionStore(database),
        watch=SqlClusterWatch(
            database,
            signal,
            SystemClock(),
            poll_s=cluster.watch_poll_s,
            heartbeat_s=cluster.watch_heartbeat_s,
        ),
    )


def _remote_log_manager(
    settings: MetadataSettings, database: Database, signal: ChangeSignal
) -> PostgresRemoteLogMetadataManager:
    remote_log = settings.remote_log
    return PostgresRemoteLogMetadataManager(
        database,
        signal,
        clock=SystemClock(),
        trace_id=current_trace_id,
        page_size=remote_log.page_size,
        watch_poll_s=remote_log.watch_poll_s,
        forget_batch=remote_log.forget_batch,
        history_ms=remote_log.history_days * _DAY_MS,
        prune_batch=remote_log.prune_batch,
        undelete_grace_ms=round(remote_log.undelete_grace_s * 1000),
    )


def _history_loops(
    settings: MetadataSettings, manager: PostgresRemoteLogMetadataManager
) -> list[SupervisedLoop]:
    return [
        SupervisedLoop(
            "forgetting of deleted partitions",
            manager.forgetting.forget_left_over,
            interval_s=settings.remote_log.forget_interval_s,
        ),
        SupervisedLoop(
            "pruning of the history",
            manager.pruning.prune,
            interval_s=settings.remote_log.prune_interval_s,
        ),
    ]


def _lease_loop(settings: MetadataSettings, brokers: BrokerStore) -> SupervisedLoop:
    watchman = LeaseWatchman(SystemClock(), lease_ms=settings.cluster.broker_lease_ms)

    async def round_() -> None:
        try:
            if not watchman.may_expire(await brokers.lease_clock_s()):
                return
            gone = await brokers.expire_leases()
        except BaseException:
            watchman.interrupted()
            raise
        if gone:
            logger.warning("broker_leases_expired", broker_ids=list(gone))

    return SupervisedLoop(
        "lease expiry",
        round_,
        interval_s=settings.cluster.lease_check_interval_s,
        backoff_max_s=2.0,
        run_deadline_s=settings.database.statement_timeout_ms / 1000 * 3,
    )
