"""RemoteStorageManagers to plug into a node by their dotted path; properties are strings (SR-4)."""

from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from aquifer_core.errors import InvalidConfigurationError
from aquifer_core.ports import RemoteStorageManager
from aquifer_core.segment import (
    CopyResult,
    IndexType,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    StoredSegment,
    VerifyProgress,
)

from aquifer_storage import __version__
from aquifer_storage.adapters.file_key_ring import FileKeyRing
from aquifer_storage.adapters.filesystem import FilesystemObjectStore
from aquifer_storage.adapters.properties import Properties
from aquifer_storage.adapters.s3 import S3ObjectStore
from aquifer_storage.adapters.s3_client import S3Options
from aquifer_storage.domain.options import StorageOptions
from aquifer_storage.domain.ports import ObjectStore
from aquifer_storage.domain.remote_storage import RemoteStorage


class PluggedRemoteStorageManager(RemoteStorageManager):
    """A RemoteStorageManager in the process that uses it, configured with properties.

    Properties of every one of them: `key.prefix`, `chunk.size.bytes`, `codec`, `zstd.level`, `encryption.key.ring.file`, `part.size.bytes`, `single.put.max.bytes`,
    `parallel.parts`, `upload.budget.bytes`, `chunk.cache.bytes`, `read.ahead.bytes`.
    """

    def __init__(self) -> None:
        self._configured: RemoteStorage | None = None

    @abstractmethod
    def _open_store(self, properties: Properties) -> ObjectStore:
        """Make the object store that the properties describe."""

    async def configure(self, configs: Mapping[str, str]) -> None:
        """Reads the properties and makes sure that the store can be used.

        Raises:
            InvalidConfigurationError: a property is unknown, missing or refused.
            RemoteStorageUnavailableError: the store does not answer, or refuses the credentials.
        """
        properties = Properties(configs)
        objects = self._open_store(properties)
        options = _options(properties)
        key_prefix = properties.text("key.prefix", "")
        ring_file = properties.text("encryption.key.ring.file", "")
        properties.refuse_the_rest()
        ring = FileKeyRing(Path(ring_file)) if ring_file else None
        if ring is not None:
            await ring.check()
        self._configured = RemoteStorage(
            objects,
            options=options,
            key_prefix=key_prefix,
            writer_version=__version__,
            key_ring=ring,
        )
        await objects.check()

    @property
    def storage(self) -> RemoteStorage:
        """What does the work, once configured."""
        if self._configured is None:
            raise InvalidConfigurationError("not configured yet; call configure first")
        return self._configured

    async def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> CopyResult:
        """Copies a segment with its indexes; idempotent for one segment id."""
        return await self.storage.copy_log_segment_data(metadata, data)

    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int,
        end_position: int | None = None,
    ) -> AsyncIterator[bytes | memoryview]:
        """The original log's bytes of a range of positions."""
        return self.storage.fetch_log_segment(metadata, start_position, end_position)

    def fetch_records(
        self,
        metadata: RemoteLogSegmentMetadata,
        fetch_offset: int,
        max_bytes: int,
        *,
        min_one_batch: bool = True,
        next_segment: RemoteLogSegmentMetadata | None = None,
    ) -> AsyncIterator[bytes | memoryview]:
        """Whole record batches from an offset."""
        return self.storage.fetch_records(
            metadata,
            fetch_offset,
            max_bytes,
            min_one_batch=min_one_batch,
            next_segment=next_segment,
        )

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """A whole index."""
        return await self.storage.fetch_index(metadata, index_type)

    async def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Deletes every object of the segment; idempotent."""
        await self.storage.delete_log_segment_data(metadata)

    async def describe_segment(self, metadata: RemoteLogSegmentMetadata) -> StoredSegment:
        """What the store's manifest says of the segment."""
        return await self.storage.describe_segment(metadata)

    def verify_segment(self, metadata: RemoteLogSegmentMetadata) -> AsyncIterator[VerifyProgress]:
        """Reads everything back and checks every checksum."""
        return self.storage.verify_segment(metadata)

    def list_stored_segments(self, prefix: str = "") -> AsyncIterator[StoredSegment]:
        """Segments found by listing the store, from manifests alone."""
        return self.storage.list_stored_segments(prefix)

    async def close(self) -> None:
        """Releases everything; idempotent."""
        if self._configured is not None:
            await self._configured.close()


class S3RemoteStorageManager(PluggedRemoteStorageManager):
    """Segments in an S3 bucket.

    Properties: `s3.endpoint` (host:port or a URL), `s3.bucket`, `s3.access.key` and `s3.secret.key` or `s3.credentials.file`
    (as AWS tools share it, read again when it changes), `s3.region` (us-east-1), `s3.secure` (false), `s3.create.bucket` (false), `s3.connections` (16), `s3.ca.file`, `s3.retry.timeout.ms` (20000), and
    those of every one.
    """

    def _open_store(self, properties: Properties) -> ObjectStore:
        credentials_file = properties.text("s3.credentials.file", "") or None
        keys_default = None if credentials_file is None else ""
        return S3ObjectStore(
            S3Options(
                endpoint=properties.text("s3.endpoint"),
                bucket=properties.text("s3.bucket"),
                access_key=properties.text("s3.access.key", keys_default),
                secret_key=properties.text("s3.secret.key", keys_default),
                credentials_file=credentials_file,
                region=properties.text("s3.region", "us-east-1"),
                secure=properties.boolean("s3.secure", False),
                create_bucket=properties.boolean("s3.create.bucket", False),
                connections=properties.positive("s3.connections", 16),
                ca_file=properties.text("s3.ca.file", "") or None,
                retry_timeout_s=properties.positive("s3.retry.timeout.ms", 20_000) / 1000,
            )
        )


class FilesystemRemoteStorageManager(PluggedRemoteStorageManager):
    """Segments in files under a directory, for a shared file system and for tests.

    Properties: `filesystem.root`, and those of every one.
    """

    def _open_store(self, properties: Properties) -> ObjectStore:
        return FilesystemObjectStore(Path(properties.text("filesystem.root")))


def _options(properties: Properties) -> StorageOptions:
    default = StorageOptions()
    return StorageOptions(
        chunk_size_bytes=properties.positive("chunk.size.bytes", default.chunk_size_bytes),
        codec=properties.text("codec", default.codec),
        zstd_level=properties.positive("zstd.level", default.zstd_level),
        part_size_bytes=properties.positive("part.size.bytes", default.part_size_bytes),
        single_put_max_bytes=properties.positive(
            "single.put.max.bytes", default.single_put_max_bytes
        ),
        parallel_parts=properties.positive("parallel.parts", default.parallel_parts),
        upload_budget_bytes=properties.positive("upload.budget.bytes", default.upload_budget_bytes),
        chunk_cache_bytes=properties.positive("chunk.cache.bytes", default.chunk_cache_bytes),
        read_ahead_bytes=properties.positive("read.ahead.bytes", default.read_ahead_bytes),
    )
