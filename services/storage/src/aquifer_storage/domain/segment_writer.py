"""Copies segments into the store."""

import asyncio
from contextlib import AbstractAsyncContextManager
from functools import partial

import structlog
from aquifer_core.errors import (
    ConcurrentUpdateError,
    CorruptSegmentError,
    ErrorReason,
    InvalidRequestError,
    RemoteStorageUnavailableError,
)
from aquifer_core.formats.remote_log_index import RemoteLogIndex
from aquifer_core.ids import RemoteLogSegmentId
from aquifer_core.segment import (
    CopyResult,
    LogSegmentData,
    LogSource,
    RemoteLogSegmentMetadata,
)

from aquifer_storage.domain.copy_deadline import copy_deadline
from aquifer_storage.domain.cpu_threads import CpuThreads
from aquifer_storage.domain.index_bundle import build_bundle, check_indexes, index_bytes
from aquifer_storage.domain.keyed_locks import KeyedLocks
from aquifer_storage.domain.log_pipeline import CopiedLog, LogPipeline
from aquifer_storage.domain.log_upload import LogUpload, OvertakenError
from aquifer_storage.domain.manifest import BundlePart, Manifest, StoredLog
from aquifer_storage.domain.manifest_store import ManifestStore, StoredManifest
from aquifer_storage.domain.object_key import ObjectKeys, SegmentKeys
from aquifer_storage.domain.options import MAX_SEGMENT_BYTES, StorageOptions
from aquifer_storage.domain.part_budget import PartBudget
from aquifer_storage.domain.ports import ObjectStore
from aquifer_storage.domain.rewrapping import Rewrapped, Rewrapper
from aquifer_storage.domain.segment_transforms import SegmentTransforms
from aquifer_storage.domain.stored_bytes import is_stored
from aquifer_storage.domain.task_owner import TaskOwner
from aquifer_storage.domain.transform import SegmentTransform

logger = structlog.get_logger(__name__)

_BUSY_RETRY_MS = 1_000
_LOOK_LATER_MAX_BYTES = 16 << 20
_TOLD_CHUNKS = 8192  # some 650 KB, well below what one message may hold
_OTHER_COPY_LOOKS = 10
_OTHER_COPY_PAUSE_S = 0.3


class SegmentWriter:
    """Copies and deletes segments.

    The `.log` object goes first, then `.indexes` unless it is small enough for the manifest, and `.manifest` last: without it
    nothing counts as copied.
    """

    def __init__(
        self,
        objects: ObjectStore,
        keys: ObjectKeys,
        manifests: ManifestStore,
        transforms: SegmentTransforms,
        options: StorageOptions,
        *,
        threads: CpuThreads,
        writer_version: str,
    ) -> None:
        self._objects = objects
        self._keys = keys
        self._manifests = manifests
        self._transforms = transforms
        self._options = options
        self._writer_version = writer_version
        self._rewrapper = Rewrapper(objects, keys, manifests, transforms)
        self._threads = threads
        self.budget = PartBudget(
            options.upload_budget_bytes, options.ahead_bytes, options.held_bytes
        )
        self._locks: KeyedLocks[RemoteLogSegmentId] = KeyedLocks()
        self._cleanups = TaskOwner()

    def room(
        self, metadata: RemoteLogSegmentMetadata, small_bytes: int
    ) -> AbstractAsyncContextManager[None]:
        """Have room in the budget for what a copy keeps beside its buffers: its small parts and a chunk at work.

        When the log is up, the bundle that is made of the small parts takes the chunk's place: joined, and sealed before that.
        """
        topic = self._options.of_topic(metadata.topic_id_partition.topic)
        chunk_bytes = min(metadata.segment_size_bytes, topic.chunk_size_bytes)
        bundle_bytes = small_bytes if self._transforms.key_ring is None else 2 * small_bytes
        return self.budget.hold(small_bytes + max(chunk_bytes, bundle_bytes))

    async def copy(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> CopyResult:
        """Copy a segment that has room; see `RemoteStorageManager.copy_log_segment_data`.

        Raises:
            ConcurrentUpdateError: an earlier copy of the same segment id failed.
        """
        _check_size(metadata, data.log_segment)
        check_indexes(metadata, data)
        async with self._locks.hold(metadata.segment_id):
            looks_first = not self._may_look_later(metadata)
            copied = await self._manifests.find(metadata) if looks_first else None
            if copied is None:
                return await self._copy(metadata, data)
            await _drain(data.log_segment)
            logger.info("segment_was_copied_before", segment_id=str(metadata.segment_id))
        return _copy_result(copied)

    async def rewrap(self, metadata: RemoteLogSegmentMetadata) -> Rewrapped:
        """Wrap a segment's data key with the active key; see `rewrapping`."""
        async with self._locks.hold(metadata.segment_id):
            return await self._rewrapper.rewrap(metadata)

    async def delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Delete every object of a segment and every unfinished upload of its log. Idempotent."""
        keys = self._keys.of(metadata)
        async with self._locks.hold(metadata.segment_id):
            self._manifests.forget(metadata)
            await self._objects.delete(keys.all)
            # Another process may have copied or rewrapped, and so written the manifest, after its deletion.
            await self._objects.delete([keys.manifest])
            await self._objects.abort_uploads(keys.log)
        logger.info("segment_deleted", segment_id=str(metadata.segment_id))

    async def close(self) -> None:
        """Let clean-ups of failed copies end; each has a deadline."""
        await self._cleanups.drain()

    def _may_look_later(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Whether the log itself, sent on the condition that there is none, tells that the segment was copied before.

        Whoever repeats a copy sends it in vain then, so it must be small; and two copies of it must be stored alike.
        """
        largest_bytes = min(_LOOK_LATER_MAX_BYTES, self._options.single_put_max_bytes)
        return metadata.segment_size_bytes <= largest_bytes and self._transforms.is_identity(
            metadata.topic_id_partition.topic
        )

    async def _copy(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> CopyResult:
        keys = self._keys.of(metadata)
        topic = self._options.of_topic(metadata.topic_id_partition.topic)
        transform = await self._transforms.begin(metadata)
        looks_later = self._may_look_later(metadata)
        most_chunks = metadata.segment_size_bytes // topic.chunk_size_bytes + 1
        most_bytes = metadata.segment_size_bytes + most_chunks * transform.overhead_bytes
        pipeline = LogPipeline(
            metadata, transform, topic.chunk_size_bytes, self._threads, self.budget
        )
        upload = LogUpload(
            self._objects,
            keys.log,
            most_bytes,
            self.budget,
            self._options,
            replaces=transform.is_identity,
            is_copied=partial(self._is_copied, metadata) if looks_later else None,
        )
        try:
            async with copy_deadline(self._options.copy_timeout_s):
                async with upload:
                    log = await pipeline.run(data.log_segment, upload)
                if not upload.is_confirmed:
                    await self._check_stored_size(keys.log, log.stored_bytes)
                table = RemoteLogIndex(log.chunks)
                copied = await self._finish(metadata, data, log, table, transform)
                await self._check_still_there(copied)
                return _copy_result(copied, table)
        except OvertakenError:
            await upload.abort()
            return _copy_result(await self._wait_for_other(metadata))
        except BaseException as error:
            logger.warning(
                "segment_copy_failed", segment_id=str(metadata.segment_id), error=repr(error)
            )
            await asyncio.shield(self._cleanups.start(self._clean_up(metadata, upload)))
            raise

    async def _wait_for_other(self, metadata: RemoteLogSegmentMetadata) -> StoredManifest:
        """Return the manifest of the copy that another process makes of the same segment, once it is there."""
        for _ in range(_OTHER_COPY_LOOKS):
            found = await self._manifests.find(metadata)
            if found is not None:
                return found
            await asyncio.sleep(_OTHER_COPY_PAUSE_S)
        raise ConcurrentUpdateError(
            f"another copy of segment {metadata.segment_id} is under way or has failed; delete it and copy with a new segment id"
        )

    async def _is_copied(self, metadata: RemoteLogSegmentMetadata) -> bool:
        return await self._manifests.find(metadata) is not None

    async def _check_stored_size(self, key: str, expected_bytes: int) -> None:
        found = await self._objects.size_bytes(key)
        if found != expected_bytes:
            raise RemoteStorageUnavailableError(
                f"{expected_bytes} bytes were written to {key}, but the store has {found}",
                retry_after_ms=_BUSY_RETRY_MS,
            )

    async def _check_still_there(self, copied: StoredManifest) -> None:
        """Withdraw a manifest whose log another process has deleted meanwhile.

        A deletion takes manifest, log and then the manifest once more. So if it did not see this one, the log is gone by now. The
        clean-up of another copy takes no log beside a manifest.
        """
        if await self._is_withdrawn(copied.keys):
            raise ConcurrentUpdateError(
                f"segment {copied.manifest.metadata.segment_id} was deleted while it was copied; copy with a new segment id"
            )

    async def _is_withdrawn(self, keys: SegmentKeys) -> bool:
        """Delete a manifest that has no log; says whether there was none."""
        if await self._objects.size_bytes(keys.log) is not None:
            return False
        await self._objects.delete([keys.manifest, keys.indexes])
        return True

    async def _finish(
        self,
        metadata: RemoteLogSegmentMetadata,
        data: LogSegmentData,
        log: CopiedLog,
        table: RemoteLogIndex,
        transform: SegmentTransform,
    ) -> StoredManifest:
        if index_bytes(data) <= self._options.manifest_bundle_max_bytes:
            bundle = build_bundle(metadata, data, table, transform)
        else:
            bundle = await self._threads.run(build_bundle, metadata, data, table, transform)
        is_small = len(bundle.data) <= self._options.manifest_bundle_max_bytes
        if not is_small:
            await self._write_bundle(self._keys.of(metadata).indexes, bundle.data)
        copied = await self._manifests.create(
            Manifest(
                metadata=metadata,
                log=StoredLog(
                    original_bytes=metadata.segment_size_bytes,
                    stored_bytes=log.stored_bytes,
                    sha256=log.sha256,
                    chunk_count=len(log.chunks),
                    codec=transform.codec,
                ),
                parts=bundle.parts,
                bundle=bundle.data if is_small else None,
                writer_version=self._writer_version,
                encryption=await self._transforms.envelope_of(transform),
            )
        )
        logger.info(
            "segment_copied",
            segment_id=str(metadata.segment_id),
            log_bytes=metadata.segment_size_bytes,
            stored_bytes=log.stored_bytes,
            chunks=len(log.chunks),
        )
        return copied

    async def _write_bundle(self, key: str, data: bytes) -> None:
        """Write the bundle unless there is one.

        Another copy of the same log, by a replica with other settings, cuts it into other chunks and describes these. Whoever wrote
        over its bundle would spoil it: its manifest may be there already.

        Raises:
            OvertakenError: there is another one.
        """
        if await self._objects.create(key, data):
            return
        is_same_size = await self._objects.size_bytes(key) == len(data)
        if not is_same_size or not await is_stored(self._objects, key, data):
            raise OvertakenError(f"another copy has written {key}")

    async def _clean_up(self, metadata: RemoteLogSegmentMetadata, upload: LogUpload) -> None:
        """Delete what a failed copy wrote, unless another copy of the same id has succeeded.

        What is deleted may be what another copy has just written. So none may succeed any more, whatever it does between the
        deletions: the mark in the manifest's place stays until the segment is deleted, which is the caller's to do, or until it is
        swept.
        """
        try:
            async with asyncio.timeout(self._options.cleanup_timeout_s):
                await upload.abort()
                if not upload.is_visible:
                    return
                keys = self._keys.of(metadata)
                if await self._manifests.abandon(keys, "copy failed"):
                    await self._objects.delete((keys.log, keys.indexes))
                else:  # this copy's perhaps, which has not come to look
                    await self._is_withdrawn(keys)
        except Exception as error:  # the copy's own error is the one to raise
            logger.warning(
                "segment_clean_up_failed", segment_id=str(metadata.segment_id), error=repr(error)
            )


def _check_size(metadata: RemoteLogSegmentMetadata, source: LogSource) -> None:
    if source.size_bytes > MAX_SEGMENT_BYTES:
        raise InvalidRequestError(
            f"segment {metadata.segment_id.id} has {source.size_bytes} bytes; at most {MAX_SEGMENT_BYTES} are accepted"
        )
    if source.size_bytes != metadata.segment_size_bytes:
        raise InvalidRequestError(
            f"segment {metadata.segment_id.id} has {metadata.segment_size_bytes} bytes by its metadata, "
            f"but its log has {source.size_bytes}",
            reason=ErrorReason.INVALID_SEGMENT,
        )


async def _drain(source: LogSource) -> None:
    async for _ in source.chunks():
        pass


def _copy_result(copied: StoredManifest, table: RemoteLogIndex | None = None) -> CopyResult:
    manifest = copied.manifest
    if BundlePart.REMOTE_LOG_INDEX not in manifest.parts:
        raise CorruptSegmentError(f"manifest {copied.keys.manifest} has no remote log index")
    is_told = table is not None and len(table) <= _TOLD_CHUNKS
    return CopyResult(
        custom_metadata=manifest.custom_metadata,
        stored_bytes=manifest.stored_bytes(copied.size_bytes),
        log_sha256=manifest.log.sha256,
        remote_log_index=table.encode() if table is not None and is_told else None,
    )
