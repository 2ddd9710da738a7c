"""Settings of the manager: variables `AQUIFER_MANAGER_...`, each with the Kafka name that it stands for."""

from pathlib import Path
from typing import Self

from aquifer_rpc.settings import Group, GrpcClientSettings, ServiceSettings
from pydantic import Field, model_validator

__all__ = ["ENV_PREFIX", "ManagerSettings", "RoleSettings"]

ENV_PREFIX = "AQUIFER_MANAGER_"

_INT32_MAX = 2**31 - 1

_GRPC_STORAGE = "aquifer_client.GrpcRemoteStorageManager"
_GRPC_METADATA = "aquifer_client.GrpcRemoteLogMetadataManager"
# Reads and tasks have their own back-off, and a reader is to be told what failed before its time is up.
_FEW_ATTEMPTS = {"max.attempts": "2"}


class RoleSettings(Group):
    """Which implementation of a role is used, and its properties."""

    class_name: str
    """Dotted Python path of the implementation."""
    endpoints: str = ""
    """Addresses of the service, host:port, separated by commas; given to the implementation as `endpoints`."""
    properties: dict[str, str] = Field(default_factory=dict)
    """Further properties as JSON, given to `configure` untouched (SR-4, SR-5)."""

    def configs(self) -> dict[str, str]:
        """What `configure` gets."""
        ours = self.class_name in (_GRPC_STORAGE, _GRPC_METADATA)
        given = dict(_FEW_ATTEMPTS) if ours else {}
        if self.endpoints:
            given["endpoints"] = self.endpoints
        return given | self.properties


class ManagerSettings(ServiceSettings):
    """Settings of the manager service."""

    storage: RoleSettings = RoleSettings(class_name=_GRPC_STORAGE)
    """`remote.log.storage.manager.class.name` and `remote.log.storage.*`."""
    metadata: RoleSettings = RoleSettings(class_name=_GRPC_METADATA)
    """`remote.log.metadata.manager.class.name` and `remote.log.metadata.*`."""
    broker_client: GrpcClientSettings = GrpcClientSettings(max_attempts=2)
    """How brokers' BrokerLogService is called."""
    data_dir: Path = Path("/var/lib/aquifer/manager")
    """Directory of the index cache and of the local remote indexes; it may be lost, and is built again from the store then."""

    thread_pool_size: int = Field(default=10, ge=1, le=1000)
    """`remote.log.manager.thread.pool.size`: task runs at once, for each kind of task."""
    task_interval_ms: int = Field(default=30_000, ge=1, le=_INT32_MAX)
    """`remote.log.manager.task.interval.ms`: from the end of a successful run to the next."""
    task_retry_backoff_ms: int = Field(default=500, ge=1)
    """`remote.log.manager.task.retry.backoff.ms`: pause after the first failed run."""
    task_retry_backoff_max_ms: int = Field(default=30_000, ge=1)
    """`remote.log.manager.task.retry.backoff.max.ms`: longest pause after failed runs."""
    task_retry_jitter: float = Field(default=0.2, ge=0, le=0.5)
    """`remote.log.manager.task.retry.jitter`: share by which pauses vary."""
    task_timeout_ms: int = Field(default=3_600_000, ge=1)
    """A run that takes longer is cancelled and counts as failed."""
    copy_segments_per_run: int = Field(default=16, ge=1)
    """Segments of one partition copied before others get their turn."""
    copy_segments_at_once: int = Field(default=3, ge=1, le=64)
    """Segments of one partition uploaded at once, as long as no other partition waits for a place; committed in offset order."""
    copy_timeout_ms: int = Field(default=1_800_000, ge=1)
    """Longest time for the upload of one segment."""
    copy_stall_timeout_ms: int = Field(default=60_000, ge=1)
    """An upload without progress for this long is given up."""
    copy_runs_per_broker: int = Field(default=8, ge=1, le=1000)
    """Uploads of one broker at once: of different partitions first, then further ones of partitions that lag."""
    copy_stalled_after_ms: int = Field(default=5000, ge=1)
    """An upload without progress for this long lends its place among the task runs to other brokers."""
    copy_abandoned_after_ms: int = Field(default=3_600_000, ge=1)
    """Age at which a copy begun and never finished is garbage; above the longest upload."""
    scrub_grace_ms: int = Field(default=600_000, ge=0)
    """Stored segments younger than this are not called extra by a scrub."""

    reader_threads: int = Field(default=10, ge=1, le=1000)
    """`remote.log.reader.threads`: remote reads at once."""
    reader_max_pending_tasks: int = Field(default=100, ge=1, le=100_000)
    """`remote.log.reader.max.pending.tasks`: remote reads waiting; more are refused."""
    fetch_timeout_ms: int = Field(default=30_000, ge=1)
    """Time for remote reads whose caller gave none."""
    segment_lookup_ttl_ms: int = Field(default=2000, ge=0)
    """How long the segment of an offset is remembered for sequential readers."""

    retention_minutes: int | None = Field(default=None, ge=1, le=_INT32_MAX)
    """`remote.log.retention.minutes`: overrides `retention.ms` of topics for remote segments."""
    retention_bytes: int | None = Field(default=None, ge=0)
    """`remote.log.retention.bytes`: overrides `retention.bytes` of topics for remote segments."""

    copy_max_bytes_per_second: int | None = Field(default=None, ge=1)
    """`remote.log.manager.copy.max.bytes.per.second`; unset: no limit."""
    fetch_max_bytes_per_second: int | None = Field(default=None, ge=1)
    """`remote.log.manager.fetch.max.bytes.per.second`; unset: no limit."""
    quota_window_seconds: int = Field(default=11, ge=1)
    """`remote.log.manager.copy.quota.window.num` times its size: over how long quotas average."""

    index_cache_bytes: int = Field(default=1024**3, ge=1)
    """`remote.log.index.file.cache.total.size.bytes`."""
    index_cache_entries: int | None = Field(default=None, ge=1)
    """Most files in the index cache; unset: no limit."""

    remote_index_rotate_bytes: int = Field(default=10 * 1024**2, ge=1, le=_INT32_MAX)
    """`remote.log.index.rotate.bytes`: most bytes of one local remote log index."""
    remote_index_rotate_ms: int = Field(default=7 * 24 * 3_600_000, ge=1)
    """`remote.log.index.rotate.ms`: most time between the records of one local remote log index."""
    remote_index_unused_ms: int = Field(default=7 * 24 * 3_600_000, ge=1)
    """Local remote indexes of partitions that nobody has asked for so long are deleted."""

    deletion_failure_topic_name: str = "__remote_segments_to_be_deleted"
    """`remote.log.deletion.failure.topic.name`: segments that could not be deleted, until they are."""
    deletion_failure_bootstrap_servers: str | None = None
    """Kafka brokers of that topic, host:port; unset: failures are logged and retried, and not published."""

    lease_ms: int = Field(default=30_000, ge=100)
    """A broker without heartbeat for this long is forgotten."""
    observe_interval_ms: int = Field(default=5000, ge=1)
    """How often the brokers' logs are looked at for lag."""
    broker_call_timeout_ms: int = Field(default=10_000, ge=1)
    """Longest time for a call to a broker, uploads excepted."""
    stop_grace_ms: int = Field(default=10_000, ge=0)
    """Task runs still under way this long after a stop began are cancelled."""

    @model_validator(mode="after")
    def _uploads_end_before_they_are_garbage(self) -> Self:
        if self.copy_abandoned_after_ms <= self.copy_timeout_ms:
            raise ValueError("copy_abandoned_after_ms must be above copy_timeout_ms")
        return self
