"""Settings of the metadata service; variables begin with `AQUIFER_METADATA_`."""

from typing import Final, Self

from aquifer_rpc.settings import Group, ServiceSettings
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, SecretStr, model_validator

from aquifer_metadata.domain.placement import MAX_REPLICATION_FACTOR

PREFIX: Final = "AQUIFER_METADATA_"


class DatabaseSettings(Group):
    """How PostgreSQL is used."""

    dsn: SecretStr = SecretStr("postgresql://aquifer@127.0.0.1:5432/aquifer")
    """Address as libpq takes it: postgresql://user:password@host:port/database?option=value."""
    pool_size: PositiveInt = 16
    """Most connections for statements; one more listens for notifications."""
    pool_wait_s: PositiveFloat = 5.0
    """Longest wait for a free connection."""
    connect_timeout_s: PositiveInt = 3
    """Longest time to connect."""
    statement_timeout_ms: PositiveInt = 10_000
    """Longest time of a statement, and of a transaction that idles."""
    lock_timeout_ms: PositiveInt = 5_000
    """Longest wait of a statement for a lock; bounds what a migration may hold up as well."""
    attempts: PositiveInt = 4
    """Tries of a transaction that met a conflict or a lost connection."""
    retry_after_ms: PositiveInt = 500
    """Told to callers while PostgreSQL does not answer."""
    auto_migrate: bool = True
    """Brings the schema up to date at the start; off: refuses to start until `aquifer-metadata migrate` was run."""


class ClusterSettings(Group):
    """How a cluster of brokers is looked after."""

    broker_lease_ms: PositiveInt = 9_000
    """A broker that has not renewed its lease for this long loses its leadership."""
    lease_check_interval_s: PositiveFloat = 0.5
    """How often overdue leases are looked for."""
    watch_poll_s: PositiveFloat = 0.2
    """How often watches look for changes nobody notified them of."""
    watch_heartbeat_s: PositiveFloat = 5.0
    """Longest silence of a watch of the cluster."""
    default_partitions: PositiveInt = 1
    """Partitions of a topic whose creator does not say."""
    default_replication_factor: PositiveInt = 1
    """Replicas of a topic whose creator does not say."""
    max_replication_factor: PositiveInt = MAX_REPLICATION_FACTOR
    """More replicas are refused. Leave it at 1: brokers do not replicate yet, so a second replica would be empty after a failover."""
    max_partitions_per_topic: PositiveInt = 10_000
    """More are refused."""

    @model_validator(mode="after")
    def _the_default_is_not_refused(self) -> Self:
        if self.default_replication_factor > self.max_replication_factor:
            raise ValueError(
                f"default_replication_factor {self.default_replication_factor} is above max_replication_factor"
                f" {self.max_replication_factor}: brokers do not replicate yet; set it to {self.max_replication_factor}"
            )
        return self


class RemoteLogSettings(Group):
    """How metadata of remote segments is looked after."""

    watch_poll_s: PositiveFloat = 1.0
    """How often it is looked, for all watches together, for changes nobody notified them of."""
    page_size: int = Field(default=500, ge=1, le=500)
    """Segments read at once when listing."""
    forget_batch: PositiveInt = 1_000
    """Segments forgotten in one transaction after a partition's deletion has finished."""
    forget_interval_s: PositiveFloat = 60.0
    """How often leftovers of finished partition deletions are looked for."""
    undelete_grace_s: NonNegativeFloat = 0.0
    """How long the remote data of a deleted topic is left alone, so that the deletion can be taken back."""
    history_days: PositiveInt = 90
    """Age at which changes leave the history of segments. What still says how things stand stays."""
    prune_batch: PositiveInt = 1_000
    """Changes looked at in one transaction when the history is pruned."""
    prune_interval_s: PositiveFloat = 21_600.0
    """How often the history is pruned."""


class MetadataSettings(ServiceSettings):
    """Everything that can be set."""

    database: DatabaseSettings = DatabaseSettings()
    """PostgreSQL."""
    cluster: ClusterSettings = ClusterSettings()
    """The cluster of brokers."""
    remote_log: RemoteLogSettings = RemoteLogSettings()
    """Metadata of remote segments."""
