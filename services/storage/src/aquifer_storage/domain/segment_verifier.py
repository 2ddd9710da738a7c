"""Reads a stored segment back and checks every checksum."""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing

from aquifer_core.errors import CorruptDataError, RemoteResourceNotFoundError
from aquifer_core.formats.record_batch import complete_batches_size, iter_batches, validate_crc
from aquifer_core.segment import RemoteLogSegmentMetadata, VerifyFinding, VerifyProgress

from aquifer_storage.domain.chunk_tables import parse_table
from aquifer_storage.domain.cpu_threads import CpuThreads
from aquifer_storage.domain.index_bundle import opened_part
from aquifer_storage.domain.manifest import LOG_PART, BundlePart, Manifest
from aquifer_storage.domain.manifest_store import ManifestStore, StoredManifest, segment_not_found
from aquifer_storage.domain.object_key import ObjectKeys
from aquifer_storage.domain.opened_segments import OpenedSegments
from aquifer_storage.domain.options import StorageOptions
from aquifer_storage.domain.ports import ObjectStore
from aquifer_storage.domain.readable_segment import ReadableSegment
from aquifer_storage.domain.transform import SegmentTransform

INDEXES_PART = "indexes"
MANIFEST_PART = "manifest"


class SegmentVerifier:
    """Verifies one segment; damage becomes findings. Reads past every cache.

    Only the store itself not answering is raised, the segment not being there, and its key not being there.
    """

    def __init__(
        self,
        objects: ObjectStore,
        keys: ObjectKeys,
        manifests: ManifestStore,
        opened: OpenedSegments,
        options: StorageOptions,
        *,
        threads: CpuThreads,
    ) -> None:
        self._objects = objects
        self._keys = keys
        self._manifests = manifests
        self._opened = opened
        self._options = options
        self._threads = threads

    async def verify(self, metadata: RemoteLogSegmentMetadata) -> AsyncIterator[VerifyProgress]:
        """Yield progress with what was found; see `RemoteStorageManager.verify_segment`."""
        keys = self._keys.of(metadata)
        try:
            stored = await self._manifests.read(keys)
        except RemoteResourceNotFoundError as error:
            raise segment_not_found(metadata) from error
        except CorruptDataError as error:
            yield VerifyProgress(
                verified_bytes=0,
                total_bytes=0,
                findings=(_finding(MANIFEST_PART, error.message),),
                done=True,
            )
            return
        manifest = stored.manifest
        transform = (await self._opened.open(manifest)).transform
        total = stored.stored_segment().stored_bytes
        findings = list(_manifest_findings(metadata, manifest))
        bundle, bundle_findings = await self._read_bundle(stored, transform)
        findings += bundle_findings
        verified = stored.size_bytes + (0 if manifest.bundle is not None else len(bundle))
        yield VerifyProgress(verified_bytes=verified, total_bytes=total, findings=tuple(findings))
        segment = _readable(manifest, bundle, transform)
        if segment is not None:
            async with aclosing(self._verify_log(segment, manifest)) as steps:
                async for read_bytes, found in steps:
                    verified += read_bytes
                    yield VerifyProgress(verified_bytes=verified, total_bytes=total, findings=found)
        yield VerifyProgress(verified_bytes=verified, total_bytes=total, done=True)

    async def _read_bundle(
        self, stored: StoredManifest, transform: SegmentTransform
    ) -> tuple[bytes, list[VerifyFinding]]:
        """Read the index bundle and check every part of it."""
        manifest = stored.manifest
        bundle = manifest.bundle
        if bundle is None and not manifest.bundle_bytes:
            return b"", []
        if bundle is None:
            try:
                bundle = await self._objects.get(stored.keys.indexes)
            except RemoteResourceNotFoundError:
                return b"", [_finding(INDEXES_PART, f"{stored.keys.indexes} is not in the store")]
        findings = []
        if len(bundle) != manifest.bundle_bytes:
            findings.append(
                _finding(
                    INDEXES_PART, f"{len(bundle)} bytes, the manifest says {manifest.bundle_bytes}"
                )
            )
        for part, location in manifest.parts.items():
            data = bundle[location.position : location.position + location.size_bytes]
            try:
                data = await self._threads.run(opened_part, transform, part, location, data)
                if part is BundlePart.REMOTE_LOG_INDEX:
                    parse_table(manifest.metadata, data)
            except CorruptDataError as error:
                findings.append(_finding(INDEXES_PART, error.message, position=location.position))
        return bundle, findings

    async def _verify_log(
        self, segment: ReadableSegment, manifest: Manifest
    ) -> AsyncGenerator[tuple[int, tuple[VerifyFinding, ...]], None]:
        """Read the log in requests of several chunks; yield bytes read and what was found."""
        key = self._keys.of(segment.metadata).log
        found_bytes = await self._objects.size_bytes(key)
        if found_bytes is None:
            yield 0, (_finding(LOG_PART, f"{key} is not in the store"),)
            return
        if found_bytes != manifest.log.stored_bytes:
            what = f"{found_bytes} bytes, the manifest says {manifest.log.stored_bytes}"
            yield 0, (_finding(LOG_PART, what),)
        digest = hashlib.sha256()
        is_whole = True
        for numbers in self._groups(segment):
            read_bytes = 0
            findings: list[VerifyFinding] = []
            entries = [segment.table.entries[number] for number in numbers]
            lengths = [entry.data_id.stored_length_bytes for entry in entries]
            async with aclosing(
                self._objects.read(key, entries[0].data_id.position, lengths)
            ) as pieces:
                following = iter(numbers)
                async for data in pieces:
                    read_bytes += len(data)
                    finding = await self._threads.run(
                        self._check, segment, next(following), data, digest
                    )
                    findings += [finding] if finding is not None else []
            is_whole = is_whole and not findings
            yield read_bytes, tuple(findings)
        if is_whole and digest.hexdigest() != manifest.log.sha256:
            yield 0, (_finding(LOG_PART, "the log does not match its SHA-256"),)

    def _check(
        self, segment: ReadableSegment, number: int, data: bytes, digest: "hashlib._Hash"
    ) -> VerifyFinding | None:
        """Check a chunk and its record batches; runs in a worker thread."""
        try:
            chunk = segment.verified_chunk(number, data)
            digest.update(chunk)
            if complete_batches_size(chunk) != len(chunk):
                raise CorruptDataError("the chunk ends inside a record batch")
            for batch in iter_batches(chunk):
                validate_crc(batch)
        except CorruptDataError as error:
            position = segment.table.entries[number].data_id.position
            return _finding(LOG_PART, error.message, chunk=number, position=position)
        return None

    def _groups(self, segment: ReadableSegment) -> Iterator[list[int]]:
        """Yield the numbers of the chunks of each request."""
        group: list[int] = []
        size_bytes = 0
        for number, entry in enumerate(segment.table.entries):
            group.append(number)
            size_bytes += entry.data_id.stored_length_bytes
            if size_bytes >= self._options.read_size_bytes:
                yield group
                group, size_bytes = [], 0
        if group:
            yield group


def _manifest_findings(
    metadata: RemoteLogSegmentMetadata, manifest: Manifest
) -> Iterator[VerifyFinding]:
    found = manifest.metadata
    if found.segment_id != metadata.segment_id:
        yield _finding(MANIFEST_PART, f"it belongs to {found.segment_id}")
    if (found.start_offset, found.end_offset) != (metadata.start_offset, metadata.end_offset):
        yield _finding(
            MANIFEST_PART, f"it covers offsets {found.start_offset} to {found.end_offset}"
        )


def _readable(
    manifest: Manifest, bundle: bytes, transform: SegmentTransform
) -> ReadableSegment | None:
    """Return the segment with its chunk table; none when that is damaged, which is a finding already."""
    location = manifest.parts[BundlePart.REMOTE_LOG_INDEX]
    data = bundle[location.position : location.position + location.size_bytes]
    try:
        opened = transform.open_part(BundlePart.REMOTE_LOG_INDEX, data)
        table = parse_table(manifest.metadata, opened)
    except CorruptDataError:
        return None
    return ReadableSegment(metadata=manifest.metadata, table=table, transform=transform)


def _finding(
    part: str, message: str, *, chunk: int | None = None, position: int | None = None
) -> VerifyFinding:
    return VerifyFinding(part=part, chunk=chunk, position=position, message=message)
