"""Puts the manager together and runs it."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from aquifer.manager.v1.remote_log_manager_service_pb2_grpc import (
    add_RemoteLogManagerServiceServicer_to_server,
)
from aquifer_core.clock import SystemClock
from aquifer_core.errors import ErrorReason
from aquifer_core.ids import KafkaUuid
from aquifer_core.ports import Clock, RemoteLogMetadataManager, RemoteStorageManager
from aquifer_rpc.server import GrpcServer
from aquifer_rpc.supervised import SupervisedLoop

from aquifer_manager.adapters.broker_logs import GrpcBrokerConnections
from aquifer_manager.adapters.failure_topic import KafkaFailureTopic
from aquifer_manager.adapters.index_cache import DiskIndexCache
from aquifer_manager.adapters.plugin import load_role
from aquifer_manager.adapters.remote_index import IndexStore
from aquifer_manager.adapters.telemetry import OtelTelemetry, observe
from aquifer_manager.app.parts import manager_parts
from aquifer_manager.domain.aborted_transactions import AbortedTransactions
from aquifer_manager.domain.batched_describes import BatchedBrokers
from aquifer_manager.domain.deletion_failures import DeletionFailures
from aquifer_manager.domain.fetch import FETCH_BACKOFF, FetchService
from aquifer_manager.domain.offset_for_timestamp import OffsetForTimestamp
from aquifer_manager.domain.partition_facts import PartitionFacts
from aquifer_manager.domain.partition_view import CopyLag
from aquifer_manager.domain.ports import IndexSource
from aquifer_manager.domain.quota import ByteQuota
from aquifer_manager.domain.reader_pool import ReaderPool
from aquifer_manager.domain.remote_indexes import RemoteIndexes
from aquifer_manager.domain.remote_log_manager import RemoteLogManager
from aquifer_manager.domain.segment_finder import SegmentFinder
from aquifer_manager.domain.segment_lookup import SegmentLookup
from aquifer_manager.domain.segment_runs import RunLookup
from aquifer_manager.domain.tasks import TaskState
from aquifer_manager.servicer import RemoteLogManagerServicer
from aquifer_manager.settings import ManagerSettings

__all__ = ["Manager", "serve"]

_BEFORE_PAUSES_AGE = 0.8
_WATCH = "/aquifer.manager.v1.RemoteLogManagerService/WatchPartitions"


async def serve(settings: ManagerSettings) -> None:
    """Runs the manager service until SIGTERM, then lets runs end and releases everything in reverse order.

    Raises:
        InvalidConfigurationError: a role's class or property is refused.
    """
    async with Manager(settings) as manager:
        await manager.server.run_until_signal()


class Manager:
    """A running manager service: the composition root, as an async context manager.

    It is ready as soon as it listens: announcements are taken and reads refused with UNAVAILABLE while metadata or storage is
    down, so that brokers never wait for those (SR-36).
    """

    server: GrpcServer
    manager: RemoteLogManager
    pool: ReaderPool

    def __init__(
        self,
        settings: ManagerSettings,
        *,
        storage: RemoteStorageManager | None = None,
        metadata: RemoteLogMetadataManager | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Prepares.

        Args:
            settings: of the service.
            storage: configured already, and closed by its owner; None takes the class that the settings name.
            metadata: likewise.
            clock: None takes the machine's.
        """
        self._settings = settings
        self._storage = storage
        self._metadata = metadata
        self._clock = clock or SystemClock()
        self._telemetry = OtelTelemetry()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def lag_by_topic(self) -> dict[str, CopyLag]:
        """See `GaugeSource`."""
        return self.manager.lag_by_topic()

    def task_states(self) -> list[TaskState]:
        """See `GaugeSource`."""
        return self.manager.task_states()

    def readers(self) -> tuple[int, int]:
        """See `GaugeSource`."""
        return self.pool.active, self.pool.pending

    def indexes_behind(self) -> int:
        """See `GaugeSource`."""
        return self._remote_indexes.behind

    async def _start(self, stack: AsyncExitStack) -> None:
        settings, clock = self._settings, self._clock
        storage = self._storage or await _storage(settings, stack)
        metadata = self._metadata or await _metadata(settings, stack)
        brokers = GrpcBrokerConnections(
            settings.broker_client,
            call_timeout_s=settings.broker_call_timeout_ms / 1000,
            copy_timeout_s=settings.copy_timeout_ms / 1000,
            copy_stall_timeout_s=settings.copy_stall_timeout_ms / 1000,
        )
        stack.push_async_callback(brokers.close)
        batched = BatchedBrokers(brokers, clock=clock)
        stack.push_async_callback(batched.close)
        facts = PartitionFacts(metadata)
        indexes = await stack.enter_async_context(
            DiskIndexCache(
                storage,
                settings.data_dir,
                max_bytes=settings.index_cache_bytes,
                max_entries=settings.index_cache_entries,
            )
        )
        store = IndexStore(
            settings.data_dir,
            rotate_bytes=settings.remote_index_rotate_bytes,
            rotate_ms=settings.remote_index_rotate_ms,
        )
        self._remote_indexes = remote_indexes = RemoteIndexes(
            metadata,
            storage,
            stack.enter_context(store),
            clock=clock,
            unused_for_s=settings.remote_index_unused_ms / 1000,
        )
        topic = await _failure_topic(settings, stack)
        failures = DeletionFailures(storage, topic, clock=clock)
        parts = manager_parts(
            settings,
            storage,
            metadata,
            batched,
            failures,
            facts=facts,
            indexes=remote_indexes,
            clock=clock,
            telemetry=self._telemetry,
        )
        self.pool = pool = ReaderPool(
            readers=settings.reader_threads, max_pending=settings.reader_max_pending_tasks
        )
        self.manager = RemoteLogManager(parts)
        self.server = GrpcServer(settings.grpc, name="manager", endless_methods=[_WATCH])
        self.server.add(
            add_RemoteLogManagerServiceServicer_to_server,
            self._servicer(storage, metadata, indexes, remote_indexes, pool),
        )
        observe(self)
        await stack.enter_async_context(parts.scheduler)
        await stack.enter_async_context(self._loop("leases", self.manager.expire_leases, 1.0))
        await stack.enter_async_context(self._loop("deletion failures", failures.flush, 1.0))
        deletions_s = settings.task_interval_ms / 1000
        await stack.enter_async_context(
            self._loop("partition deletions", parts.deletions.look, deletions_s)
        )
        await stack.enter_async_context(
            self._loop("retention", parts.quiet.confirm, settings.task_interval_ms / 1000)
        )
        # Before what is known gets too old for runs to begin.
        pauses_s = deletions_s * _BEFORE_PAUSES_AGE
        await stack.enter_async_context(self._loop("pauses", parts.pauses.look, pauses_s))
        await stack.enter_async_context(self._loop("remote indexes", remote_indexes.update, 1.0))
        observe_s = settings.observe_interval_ms / 1000
        await stack.enter_async_context(self._loop("logs", parts.observer.observe, observe_s))
        await stack.enter_async_context(self.server)

    def _servicer(
        self,
        storage: RemoteStorageManager,
        metadata: RemoteLogMetadataManager,
        indexes: IndexSource,
        remote_indexes: RemoteIndexes,
        pool: ReaderPool,
    ) -> RemoteLogManagerServicer:
        settings, clock = self._settings, self._clock
        finder = SegmentFinder(metadata, remote_indexes, clock=clock, telemetry=self._telemetry)
        fetches = FetchService(
            storage,
            SegmentLookup(finder, clock=clock, ttl_s=settings.segment_lookup_ttl_ms / 1000),
            AbortedTransactions(finder, indexes),
            runs=RunLookup(metadata, finder, clock=clock),
            indexes=remote_indexes,
            pool=pool,
            quota=ByteQuota(
                settings.fetch_max_bytes_per_second,
                reason=ErrorReason.FETCH_QUOTA,
                clock=clock,
                window_s=settings.quota_window_seconds,
            ),
            clock=clock,
            telemetry=self._telemetry,
        )
        timestamps = OffsetForTimestamp(
            storage, finder, indexes, pool=pool, clock=clock, backoff=FETCH_BACKOFF
        )
        return RemoteLogManagerServicer(
            self.manager,
            fetches,
            timestamps,
            incarnation=str(KafkaUuid.random()),
            default_timeout_s=settings.fetch_timeout_ms / 1000,
        )

    def _loop(
        self, name: str, body: Callable[[], Awaitable[None]], interval_s: float
    ) -> SupervisedLoop:
        return SupervisedLoop(f"manager {name}", body, interval_s=interval_s)


async def _storage(settings: ManagerSettings, stack: AsyncExitStack) -> RemoteStorageManager:
    key = "remote.log.storage.manager.class.name"
    role: RemoteStorageManager = load_role(settings.storage.class_name, RemoteStorageManager, key)
    await role.configure(settings.storage.configs())
    stack.push_async_callback(role.close)
    return role


async def _metadata(settings: ManagerSettings, stack: AsyncExitStack) -> RemoteLogMetadataManager:
    key = "remote.log.metadata.manager.class.name"
    role: RemoteLogMetadataManager = load_role(
        settings.metadata.class_name, RemoteLogMetadataManager, key
    )
    await role.configure(settings.metadata.configs())
    stack.push_async_callback(role.close)
    return role


async def _failure_topic(
    settings: ManagerSettings, stack: AsyncExitStack
) -> KafkaFailureTopic | None:
    servers = settings.deletion_failure_bootstrap_servers
    if servers is None:
        return None
    return await stack.enter_async_context(
        KafkaFailureTopic(servers, settings.deletion_failure_topic_name)
    )
