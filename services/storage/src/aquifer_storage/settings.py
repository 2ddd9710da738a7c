"""Settings of the storage service; variables begin with `AQUIFER_STORAGE_`."""

from enum import StrEnum
from pathlib import Path
from typing import Final, Self

from aquifer_rpc.settings import Group, GrpcServerSettings, ServiceSettings
from pydantic import Field, PositiveFloat, PositiveInt, SecretStr, model_validator

from aquifer_storage.domain.options import MIB
from aquifer_storage.domain.zstd_codec import DEFAULT_LEVEL, MAX_LEVEL, NO_CODEC, ZSTD

PREFIX: Final = "AQUIFER_STORAGE_"


class Backend(StrEnum):
    """Kinds of stores."""

    S3 = "s3"
    FILESYSTEM = "filesystem"


class Codec(StrEnum):
    """Compressions of chunks."""

    NONE = NO_CODEC
    ZSTD = ZSTD


class S3Settings(Group):
    """The S3 store."""

    endpoint: str = "127.0.0.1:9000"
    """Address as host:port, or as a URL."""
    bucket: str = "aquifer"
    """Bucket for the segments."""
    access_key: str = "aquifer"
    """Access key id."""
    secret_key: SecretStr = SecretStr("aquifer-secret")
    """Secret access key."""
    region: str = "us-east-1"
    """Region of the bucket; signatures need it."""
    secure: bool = False
    """TLS, also without https:// in the endpoint."""
    ca_file: Path | None = None
    """PEM authorities to trust, read again when the file changes; unset: those of certifi."""
    credentials_file: Path | None = None
    """Credentials as AWS tools share them, read again when the file changes; unset: the two keys."""
    profile: str = "default"
    """Section of the credentials file."""
    virtual_host_style: bool | None = None
    """Puts the bucket into the host name; unset: into the path, except at AWS."""
    sign_payloads: bool = True
    """Signs the SHA-256 of what is written where there is no TLS; without, only its CRC-32C, for a fifth less processor time."""
    create_bucket: bool = True
    """Creates the bucket when it is missing."""
    connections: PositiveInt = 16
    """Most requests at once."""
    connect_timeout_s: PositiveFloat = 5.0
    """Longest time to connect."""
    read_timeout_s: PositiveFloat = 30.0
    """Longest silence of the store within a request; 256 KiB of a body must go out in it."""
    retry_timeout_s: PositiveFloat = 20.0
    """How long a request that the store does not answer is tried again."""

    @model_validator(mode="after")
    def _files_are_used(self) -> Self:
        is_tls = self.secure or self.endpoint.startswith("https://")
        if self.ca_file is not None and not is_tls:
            raise ValueError("ca_file needs TLS: set secure, or begin the endpoint with https://")
        if self.secure and self.endpoint.startswith("http://"):
            raise ValueError("secure contradicts an endpoint that begins with http://")
        return self


class FilesystemSettings(Group):
    """The store in files."""

    root: Path = Path("/var/lib/aquifer/segments")
    """Directory of the segments."""


class TopicSettings(Group):
    """What differs for some topics; unset: as for all."""

    codec: Codec | None = None
    """Compression of chunks."""
    zstd_level: int | None = Field(default=None, ge=1, le=MAX_LEVEL)
    """Level of the compression."""
    chunk_size_bytes: int | None = Field(default=None, ge=1, le=1 << 30)
    """A chunk ends at the first record batch border at or after it."""


class CopySettings(Group):
    """How segments are copied."""

    chunk_size_bytes: int = Field(default=4 * MIB, ge=1, le=1 << 30)
    """A chunk ends at the first record batch border at or after it."""
    codec: Codec = Codec.NONE
    """Compression of chunks. Chunks whose batches are compressed already, or that do not shrink, stay as they are."""
    zstd_level: int = Field(default=DEFAULT_LEVEL, ge=1, le=MAX_LEVEL)
    """Level of the compression; higher is smaller and slower."""
    topics: dict[str, TopicSettings] = Field(default_factory=dict)
    """What differs for topics, by patterns of their names, as JSON: `{"logs-*": {"codec": "zstd"}}`. The first that matches counts."""
    cpu_threads: PositiveInt | None = None
    """Threads that digest, compress and encrypt; unset: one per processor."""
    part_size_bytes: int = Field(default=32 * MIB, ge=5 * MIB, le=1 << 30)
    """Size of the parts of a multipart upload; S3 takes none below 5 MiB."""
    single_put_max_bytes: int = Field(default=64 * MIB, ge=0, le=1 << 30)
    """Logs up to this go up with one request."""
    parallel_parts: int = Field(default=2, ge=1, le=64)
    """Parts of one copy in upload at once. Managers copy several segments at once, which share the budget; raise it for few, large ones."""
    budget_bytes: PositiveInt = 160 * MIB
    """Memory of all copies together: parts in upload, chunks at work, indexes."""
    timeout_s: PositiveFloat = 6 * 3600.0
    """Longest time of one copy, whatever deadline its caller has set."""
    sweep_uploads_after_s: PositiveFloat = 24 * 3600.0
    """Unfinished uploads of segments older than this are taken for those of crashed processes and deleted; at least `timeout_s`."""
    sweep_interval_s: PositiveFloat = 3600.0
    """Time between sweeps of unfinished uploads; the first comes at the start."""
    sweep_objects_after_s: PositiveFloat = 24 * 3600.0
    """Objects of segments without a manifest older than this, by the store's clock, are taken for those of failed copies and deleted;
    at least twice `timeout_s`."""
    sweep_objects_interval_s: PositiveFloat = 24 * 3600.0
    """Time between sweeps of such objects, which list the whole store; the first comes at the start."""

    @model_validator(mode="after")
    def _copies_end_before_they_are_garbage(self) -> Self:
        if self.sweep_objects_after_s < 2 * self.timeout_s:
            raise ValueError("sweep_objects_after_s must be at least twice timeout_s")
        if self.sweep_uploads_after_s < self.timeout_s:
            raise ValueError("sweep_uploads_after_s must be at least timeout_s")
        return self


class ReadSettings(Group):
    """How segments are read."""

    chunk_cache_bytes: PositiveInt = 256 * MIB
    """Memory of all chunks, cached or being read."""
    read_ahead_bytes: int = Field(default=32 * MIB, ge=0)
    """How far a sequential reader is read ahead; 0 turns that off."""
    read_size_bytes: PositiveInt = 16 * MIB
    """A request to the store reads whole chunks up to the first that reaches it."""
    read_timeout_s: PositiveFloat = 60.0
    """Longest time of one request for chunks, retries included."""


class DiskCacheSettings(Group):
    """Chunks on disk, as they are stored; all worker processes share them, and they survive restarts."""

    folder: Path | None = None
    """Where to keep them; unset: nowhere."""
    capacity_bytes: PositiveInt = 10 * 1024 * MIB
    """Size of all of them together."""


class EncryptionSettings(Group):
    """Encryption of what is stored."""

    key_ring_file: Path | None = None
    """JSON file that names the key-encryption keys; set: new segments are encrypted. Read again when it changes."""


class StorageSettings(ServiceSettings):
    """Everything that can be set."""

    workers: int = Field(default=1, ge=1, le=64)
    """Processes that share the port and the disk cache. Memory budgets and connections are those of each."""
    grpc: GrpcServerSettings = GrpcServerSettings(stream_window_bytes=MIB)
    """How the service listens. Copies that wait for the upload budget have a window's bytes each in memory."""
    backend: Backend = Backend.S3
    """Kind of store."""
    key_prefix: str = ""
    """Put before every object key."""
    s3: S3Settings = S3Settings()
    """The S3 store."""
    filesystem: FilesystemSettings = FilesystemSettings()
    """The store in files."""
    copying: CopySettings = CopySettings()
    """Copying."""
    encryption: EncryptionSettings = EncryptionSettings()
    """Encryption."""
    reading: ReadSettings = ReadSettings()
    """Reading."""
    disk_cache: DiskCacheSettings = DiskCacheSettings()
    """Chunks on disk."""
    limits_file: Path | None = None
    """JSON file with limits of the kinds of work (copy, fetch, verify, delete), applied within seconds when it changes:
    `{"copy": {"bytes_per_s": 104857600, "concurrency": 8}}`; unset: no limits."""
    limits_check_interval_s: PositiveFloat = 1.0
    """How often that file is looked at."""
