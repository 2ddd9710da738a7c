"""The RemoteStorageManager over an object store."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing

from aquifer_core.errors import RemoteResourceNotFoundError
from aquifer_core.ports import RemoteStorageManager
from aquifer_core.segment import (
    CopyResult,
    IndexType,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    StoredSegment,
    VerifyProgress,
)

from aquifer_storage.domain.chunk_reader import ChunkReader
from aquifer_storage.domain.chunk_tables import ChunkTables
from aquifer_storage.domain.cpu_threads import CpuThreads
from aquifer_storage.domain.index_bundle import index_bytes
from aquifer_storage.domain.index_parts import IndexParts
from aquifer_storage.domain.limited_store import LimitedObjectStore
from aquifer_storage.domain.manifest_store import ManifestStore
from aquifer_storage.domain.object_key import ObjectKeys
from aquifer_storage.domain.opened_segments import OpenedSegments
from aquifer_storage.domain.options import StorageOptions
from aquifer_storage.domain.ports import HeldChunks, KeyRing, ObjectStore
from aquifer_storage.domain.rewrapping import Rewrapped
from aquifer_storage.domain.segment_reader import SegmentReader
from aquifer_storage.domain.segment_transforms import SegmentTransforms
from aquifer_storage.domain.segment_verifier import SegmentVerifier
from aquifer_storage.domain.segment_writer import SegmentWriter
from aquifer_storage.domain.stored_chunks import StoredChunks
from aquifer_storage.domain.warming import SegmentWarmer, WarmProgress
from aquifer_storage.domain.work_limits import Work, WorkLimits


class RemoteStorage(RemoteStorageManager):
    """Copies, reads, verifies, lists and deletes segments; see the role for the contracts.

    It owns the object store and closes it.
    """

    def __init__(
        self,
        objects: ObjectStore,
        *,
        options: StorageOptions,
        writer_version: str,
        key_prefix: str = "",
        key_ring: KeyRing | None = None,
        held_chunks: HeldChunks | None = None,
        limits: WorkLimits | None = None,
    ) -> None:
        keys = ObjectKeys(key_prefix)
        copying, fetching, verifying = (
            LimitedObjectStore(objects, limits or WorkLimits(), work)
            for work in (Work.COPY, Work.FETCH, Work.VERIFY)
        )
        self._objects = objects
        self._held_chunks = held_chunks
        self.options = options
        self.writer_version = writer_version
        self._manifests = ManifestStore(objects, keys, options.manifest_cache_bytes)
        self._threads = CpuThreads(options.cpu_threads)
        self._transforms = SegmentTransforms(key_ring, options)
        opened = OpenedSegments(self._manifests, self._transforms)
        parts = IndexParts(fetching, keys)
        self._tables = ChunkTables(parts, opened, options.table_cache_chunks)
        self.chunks = ChunkReader(StoredChunks(fetching, keys, self._threads, held_chunks), options)
        self._warmer = SegmentWarmer(self._tables, self.chunks)
        self.writer = SegmentWriter(
            copying,
            keys,
            self._manifests,
            self._transforms,
            options,
            threads=self._threads,
            writer_version=writer_version,
        )
        self._reader = SegmentReader(
            parts, opened, self._tables, self.chunks, threads=self._threads
        )
        self._verifier = SegmentVerifier(
            verifying, keys, self._manifests, opened, options, threads=self._threads
        )

    @property
    def encryption(self) -> str:
        """Encryption of new segments, `none` or the cipher."""
        return self._transforms.encryption

    async def configure(self, configs: Mapping[str, str]) -> None:
        """Nothing is left to configure: everything came with the constructor."""

    async def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> CopyResult:
        """Copies a segment with its indexes; idempotent for one segment id."""
        async with self.writer.room(metadata, index_bytes(data)):
            return await self.writer.copy(metadata, data)

    async def copy_received(
        self,
        metadata: RemoteLogSegmentMetadata,
        small_bytes: int,
        receive: Callable[[], Awaitable[LogSegmentData]],
    ) -> CopyResult:
        """Copies a segment as `copy_log_segment_data` does, and receives its small parts only when there is room for them.

        Args:
            metadata: the segment.
            small_bytes: size of all parts besides the log.
            receive: receives these.
        """
        async with self.writer.room(metadata, small_bytes):
            return await self.writer.copy(metadata, await receive())

    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int,
        end_position: int | None = None,
    ) -> AsyncGenerator[memoryview, None]:
        """The original log's bytes of a range of positions."""
        return self._reader.fetch_log_segment(metadata, start_position, end_position)

    async def fetch_records(
        self,
        metadata: RemoteLogSegmentMetadata,
        fetch_offset: int,
        max_bytes: int,
        *,
        min_one_batch: bool = True,
        next_segment: RemoteLogSegmentMetadata | None = None,
    ) -> AsyncIterator[bytes | memoryview]:
        """Whole record batches from an offset."""
        found = self.fetch_positioned_records(
            metadata,
            fetch_offset,
            max_bytes,
            min_one_batch=min_one_batch,
            next_segment=next_segment,
        )
        async with aclosing(found):
            async for _, data in found:
                yield data

    def fetch_positioned_records(
        self,
        metadata: RemoteLogSegmentMetadata,
        fetch_offset: int,
        max_bytes: int,
        *,
        min_one_batch: bool = True,
        next_segment: RemoteLogSegmentMetadata | None = None,
    ) -> AsyncGenerator[tuple[int, memoryview], None]:
        """Whole record batches from an offset, each piece with its position in the log.

        Args:
            metadata: the segment.
            fetch_offset: the offset that the first batch holds.
            max_bytes: most bytes to return.
            min_one_batch: return the first batch even when it is larger.
            next_segment: what a sequential reader asks for next; read-ahead crosses into it.
        """
        return self._reader.fetch_records(
            metadata,
            fetch_offset,
            max_bytes,
            min_one_batch=min_one_batch,
            next_segment=next_segment,
        )

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """A whole index."""
        return await self._reader.fetch_index(metadata, index_type)

    async def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Deletes every object of the segment; idempotent."""
        await self.writer.delete(metadata)
        self._manifests.forget(metadata)
        self._tables.forget(metadata)
        self.chunks.forget(metadata)
        if self._held_chunks is not None:
            await self._held_chunks.forget(metadata.segment_id.id)

    def warm_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int = 0,
        end_position: int | None = None,
    ) -> AsyncGenerator[WarmProgress, None]:
        """Loads a range of positions into the caches, as far as there is room."""
        return self._warmer.warm(metadata, start_position, end_position)

    async def rewrap_segment(self, metadata: RemoteLogSegmentMetadata) -> Rewrapped:
        """Wraps the segment's data key with the active key; only the manifest is written. Idempotent.

        Raises:
            RemoteResourceNotFoundError: the segment is not in the store.
            PreconditionError: the key that wrapped the data key, or the active one, is not there.
        """
        return await self.writer.rewrap(metadata)

    async def describe_segment(self, metadata: RemoteLogSegmentMetadata) -> StoredSegment:
        """What the store's manifest says of the segment, not one in memory: another process may have rewrapped or deleted it.

        Raises:
            RemoteResourceNotFoundError: the segment is not in the store, or its log is not, whatever its manifest says.
        """
        self._manifests.forget(metadata)
        stored = await self._manifests.get(metadata)
        if await self._objects.size_bytes(stored.keys.log) is None:
            raise RemoteResourceNotFoundError(
                f"the log of segment {metadata.segment_id} is not in the store, its manifest is",
                metadata={"segmentId": str(metadata.segment_id.id)},
            )
        return stored.stored_segment()

    def verify_segment(self, metadata: RemoteLogSegmentMetadata) -> AsyncIterator[VerifyProgress]:
        """Reads everything back and checks every checksum."""
        return self._verifier.verify(metadata)

    async def list_stored_segments(self, prefix: str = "") -> AsyncIterator[StoredSegment]:
        """Segments found by listing the store, from manifests alone."""
        async with aclosing(self._manifests.list(prefix)) as found:
            async for stored in found:
                yield stored.stored_segment()

    async def close(self) -> None:
        """Lets clean-ups end, stops reads and closes the store; idempotent."""
        await self.writer.close()
        await self._reader.close()
        await self.chunks.close()
        if self._held_chunks is not None:
            await self._held_chunks.close()
        await self._tables.close()
        await self._manifests.close()
        await self._transforms.close()
        self._threads.close()
        await self._objects.close()
