"""What a manager decides with: tasks, their scheduler, and what answers operators."""

from aquifer_core.errors import ErrorReason
from aquifer_core.ports import Clock, RemoteLogMetadataManager, RemoteStorageManager

from aquifer_manager.domain.backoff import Backoff
from aquifer_manager.domain.batched_describes import BatchedBrokers
from aquifer_manager.domain.copy_task import CopyTask
from aquifer_manager.domain.copy_turns import CopyTurns
from aquifer_manager.domain.deletion_failures import DeletionFailures
from aquifer_manager.domain.expected_describes import ExpectedDescribes
from aquifer_manager.domain.expiration_task import ExpirationTask
from aquifer_manager.domain.fetch import FETCH_BACKOFF
from aquifer_manager.domain.follower_task import FollowerTask
from aquifer_manager.domain.leader_log import LeaderLogs
from aquifer_manager.domain.log_observer import LogObserver
from aquifer_manager.domain.partition_deletion_task import PartitionDeletionTask
from aquifer_manager.domain.partition_deletions import PartitionDeletions
from aquifer_manager.domain.partition_facts import PartitionFacts
from aquifer_manager.domain.paused_tasks import PausedTasks
from aquifer_manager.domain.ports import Telemetry
from aquifer_manager.domain.quiet_retention import QuietRetention
from aquifer_manager.domain.quota import ByteQuota
from aquifer_manager.domain.registry import Registry
from aquifer_manager.domain.remote_indexes import RemoteIndexes
from aquifer_manager.domain.remote_log_manager import ManagerParts
from aquifer_manager.domain.scheduler import Scheduler
from aquifer_manager.domain.scrub_healing import ScrubHealing
from aquifer_manager.domain.scrub_task import ScrubTask
from aquifer_manager.domain.segment_copy import SegmentCopy
from aquifer_manager.domain.segment_deletion import SegmentDeletion
from aquifer_manager.domain.task_lane import LaneSettings
from aquifer_manager.domain.tasks import TaskType
from aquifer_manager.domain.topic_config import RetentionOverrides
from aquifer_manager.domain.upload_slots import UploadSlots
from aquifer_manager.domain.why import Explainer
from aquifer_manager.domain.why_reading import ReadExplainer
from aquifer_manager.settings import ManagerSettings

__all__ = ["manager_parts"]

_LOOK_AHEAD_S = 1.0
_CONFIRMED_INTERVALS = 3
_CONFIRMED_FOR_S = 10.0
_PAUSES_FRESH_S = 1.0


def manager_parts(
    settings: ManagerSettings,
    storage: RemoteStorageManager,
    metadata: RemoteLogMetadataManager,
    brokers: BatchedBrokers,
    failures: DeletionFailures,
    *,
    facts: PartitionFacts,
    indexes: RemoteIndexes,
    clock: Clock,
    telemetry: Telemetry,
) -> ManagerParts:
    """Everything behind the RPCs that register, schedule and explain.

    Args:
        settings: of the service.
        storage: configured.
        metadata: configured.
        brokers: how brokers are reached; told here which questions to expect.
        failures: deletions that fail.
        facts: metadata of many partitions.
        indexes: local remote indexes, told what they should cover.
        clock: measures and waits.
        telemetry: spans and counters.
    """
    made = _Workshop(
        settings,
        storage,
        metadata,
        brokers,
        failures,
        facts=facts,
        indexes=indexes,
        clock=clock,
        telemetry=telemetry,
    )
    expiration = made.expiration()
    scheduler = made.scheduler(expiration)
    return ManagerParts(
        registry=made.registry,
        scheduler=scheduler,
        brokers=brokers,
        deletions=PartitionDeletions(metadata, scheduler.add, clock=clock),
        expiration=expiration,
        quiet=made.quiet,
        scrub=made.scrub(),
        observer=LogObserver(made.registry, brokers, clock=clock),
        explainer=Explainer(
            made.registry,
            scheduler,
            made.logs,
            metadata,
            expiration,
            failures=failures,
            reading=ReadExplainer(storage, metadata),
            pauses=made.pauses,
            clock=clock,
        ),
        pauses=made.pauses,
        clock=clock,
    )


class _Workshop:
    """Makes the parts that share a registry, copies and deletions."""

    def __init__(
        self,
        settings: ManagerSettings,
        storage: RemoteStorageManager,
        metadata: RemoteLogMetadataManager,
        brokers: BatchedBrokers,
        failures: DeletionFailures,
        *,
        facts: PartitionFacts,
        indexes: RemoteIndexes,
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        self._settings = settings
        self._storage = storage
        self._metadata = metadata
        self._brokers = brokers
        self._facts = facts
        self._indexes = indexes
        self._clock = clock
        self._telemetry = telemetry
        self.registry = Registry(lease_ms=settings.lease_ms, clock=clock)
        self.logs = LeaderLogs(self.registry, brokers, metadata, facts, indexes)
        self.quiet = QuietRetention(
            self.registry,
            facts,
            clock=clock,
            confirmed_for_s=max(
                _CONFIRMED_INTERVALS * settings.task_interval_ms / 1000, _CONFIRMED_FOR_S
            ),
        )
        self.pauses = PausedTasks(
            metadata,
            clock=clock,
            fresh_for_s=max(settings.task_interval_ms / 1000, _PAUSES_FRESH_S),
        )
        self._deletion = SegmentDeletion(
            storage, metadata, failures, clock=clock, telemetry=telemetry
        )
        self._uploads = UploadSlots(
            per_broker=settings.copy_runs_per_broker,
            stalled_after_s=settings.copy_stalled_after_ms / 1000,
            clock=clock,
        )
        self._copies = SegmentCopy(
            metadata,
            self._deletion,
            uploads=self._uploads,
            indexes=indexes,
            clock=clock,
            backoff=FETCH_BACKOFF,
        )
        self._copy_quota = ByteQuota(
            settings.copy_max_bytes_per_second,
            reason=ErrorReason.COPY_QUOTA,
            clock=clock,
            window_s=settings.quota_window_seconds,
        )

    def expiration(self) -> ExpirationTask:
        """What deletes expired segments."""
        settings = self._settings
        return ExpirationTask(
            self.registry,
            self.logs,
            self._metadata,
            self._deletion,
            self._copies,
            quiet=self.quiet,
            clock=self._clock,
            telemetry=self._telemetry,
            overrides=RetentionOverrides(
                minutes=settings.retention_minutes, size_bytes=settings.retention_bytes
            ),
            copy_abandoned_after_ms=settings.copy_abandoned_after_ms,
        )

    def scheduler(self, expiration: ExpirationTask) -> Scheduler:
        """What runs all tasks; uploads that stand still lend their slots, and brokers are asked ahead for what is due."""
        runners = {
            TaskType.COPY: self._copy().run,
            TaskType.EXPIRATION: expiration.run,
            TaskType.FOLLOWER: FollowerTask(
                self.registry, self._brokers, self._metadata, self._facts, self._indexes
            ).run,
            TaskType.PARTITION_DELETION: self._partition_deletion().run,
        }
        scheduler = Scheduler(
            runners,
            dict.fromkeys(runners, _lane(self._settings)),
            clock=self._clock,
            stop_grace_s=self._settings.stop_grace_ms / 1000,
            lent={TaskType.COPY: self._uploads.lent},
            on_asked=self._brokers.forget_answers,
            gate=self.pauses,
        )
        self._uploads.watch(
            on_free=lambda key: scheduler.due_now([key]),
            on_lent=lambda: scheduler.wake(TaskType.COPY),
            has_room=lambda: scheduler.has_room(TaskType.COPY),
        )
        expected = ExpectedDescribes(
            self.registry,
            scheduler.due_within,
            clock=self._clock,
            horizon_s=_LOOK_AHEAD_S,
            copy_max_segments=self._settings.copy_segments_per_run + 1,
        )
        self._brokers.expect(expected.at)
        return scheduler

    def scrub(self) -> ScrubTask:
        """What compares metadata, listing and content, and heals."""
        healing = ScrubHealing(
            self.registry,
            self.logs,
            self._storage,
            self._metadata,
            copies=self._copies,
            deletion=self._deletion,
            quota=self._copy_quota,
            clock=self._clock,
        )
        return ScrubTask(
            self._storage,
            self._metadata,
            healing,
            clock=self._clock,
            telemetry=self._telemetry,
            grace_ms=self._settings.scrub_grace_ms,
        )

    def _copy(self) -> CopyTask:
        return CopyTask(
            self.registry,
            self.logs,
            self._copies,
            CopyTurns(self._copy_quota, clock=self._clock),
            uploads=self._uploads,
            clock=self._clock,
            telemetry=self._telemetry,
            segments_per_run=self._settings.copy_segments_per_run,
            segments_at_once=self._settings.copy_segments_at_once,
        )

    def _partition_deletion(self) -> PartitionDeletionTask:
        return PartitionDeletionTask(
            self._metadata,
            self._deletion,
            clock=self._clock,
            telemetry=self._telemetry,
            copy_abandoned_after_ms=self._settings.copy_abandoned_after_ms,
        )


def _lane(settings: ManagerSettings) -> LaneSettings:
    return LaneSettings(
        size=settings.thread_pool_size,
        interval_s=settings.task_interval_ms / 1000,
        backoff=Backoff(
            initial_ms=settings.task_retry_backoff_ms,
            max_ms=settings.task_retry_backoff_max_ms,
            jitter=settings.task_retry_jitter,
        ),
        run_timeout_s=settings.task_timeout_ms / 1000,
    )
