"""What a manager decides with: tasks, their scheduler, and what answers operators."""

from aquifer_core.errors import ErrorReason
from aquifer_core.ports import Clock, RemoteLogMetadataManager, RemoteStorageManager

from aquifer_manager.domain.backoff import Backoff
from aquifer_manager.domain.batched_describes import BatchedBrokers
from aquifer_manager.domain.copy_task import CopyTask
from aquifer_manager.domain.deletion_failures import DeletionFailures
from aquifer_manager.domain.expected_describes import ExpectedDescribes
from aquifer_manager.domain.expiration_task import ExpirationTask
from aquifer_manager.domain.fetch import FETCH_BACKOFF
from aquifer_manager.domain.follower_task import FollowerTask
from aquifer_manager.domain.leader_log import LeaderLogs
from aquifer_manager.domain.log_observer import LogObserver
from aquifer_manager.domain.partition_deletion_task import PartitionDeletionTask
from aquifer_manager.domain.partition_deletions import PartitionDeletions
from aquifer_manager.domain.ports import Telemetry
from aquifer_manager.domain.quota import ByteQuota
from aquifer_manager.domain.registry import Registry
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


def manager_parts(
    settings: ManagerSettings,
    storage: RemoteStorageManager,
    metadata: RemoteLogMetadataManager,
    brokers: BatchedBrokers,
    failures: DeletionFailures,
    *,
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
        clock: measures and waits.
        telemetry: spans and counters.
    """
    registry = Registry(lease_ms=settings.lease_ms, clock=clock)
    logs = LeaderLogs(registry, brokers, metadata)
    deletion = SegmentDeletion(storage, metadata, failures, clock=clock, telemetry=telemetry)
    uploads = UploadSlots(
        per_broker=settings.copy_runs_per_broker,
        stalled_after_s=settings.copy_stalled_after_ms / 1000,
        clock=clock,
    )
    copies = SegmentCopy(metadata, deletion, uploads=uploads, clock=clock, backoff=FETCH_BACKOFF)
    copy_quota = ByteQuota(
        settings.copy_max_bytes_per_second,
        reason=ErrorReason.COPY_QUOTA,
        clock=clock,
        window_s=settings.quota_window_seconds,
    )
    copy = CopyTask(
        registry,
        logs,
        copies,
        copy_quota,
        uploads=uploads,
        clock=clock,
        telemetry=telemetry,
        segments_per_run=settings.copy_segments_per_run,
    )
    expiration = ExpirationTask(
        registry,
        logs,
        metadata,
        deletion,
        copies,
        clock=clock,
        telemetry=telemetry,
        overrides=RetentionOverrides(
            minutes=settings.retention_minutes, size_bytes=settings.retention_bytes
        ),
        copy_abandoned_after_ms=settings.copy_abandoned_after_ms,
    )
    partition_deletion = PartitionDeletionTask(
        metadata,
        deletion,
        clock=clock,
        telemetry=telemetry,
        copy_abandoned_after_ms=settings.copy_abandoned_after_ms,
    )
    runners = {
        TaskType.COPY: copy.run,
        TaskType.EXPIRATION: expiration.run,
        TaskType.FOLLOWER: FollowerTask(registry, brokers, metadata).run,
        TaskType.PARTITION_DELETION: partition_deletion.run,
    }
    lane = _lane(settings)
    scheduler = Scheduler(
        runners,
        dict.fromkeys(runners, lane),
        clock=clock,
        stop_grace_s=settings.stop_grace_ms / 1000,
        lent={TaskType.COPY: uploads.stalled},
        on_asked=brokers.forget_answers,
    )
    uploads.watch(
        on_free=lambda key: scheduler.due_now([key]),
        on_stalled=lambda: scheduler.wake(TaskType.COPY),
    )
    expected = ExpectedDescribes(
        registry,
        scheduler.due_within,
        clock=clock,
        horizon_s=_LOOK_AHEAD_S,
        copy_max_segments=settings.copy_segments_per_run + 1,
    )
    brokers.expect(expected.at)
    return ManagerParts(
        registry=registry,
        scheduler=scheduler,
        brokers=brokers,
        deletions=PartitionDeletions(metadata, scheduler.add, clock=clock),
        expiration=expiration,
        scrub=ScrubTask(
            storage,
            metadata,
            ScrubHealing(
                registry,
                logs,
                storage,
                metadata,
                copies=copies,
                deletion=deletion,
                quota=copy_quota,
                clock=clock,
            ),
            clock=clock,
            telemetry=telemetry,
            grace_ms=settings.scrub_grace_ms,
        ),
        observer=LogObserver(registry, brokers, clock=clock),
        explainer=Explainer(
            registry,
            scheduler,
            logs,
            metadata,
            expiration,
            failures=failures,
            reading=ReadExplainer(storage, metadata),
            clock=clock,
        ),
        clock=clock,
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
