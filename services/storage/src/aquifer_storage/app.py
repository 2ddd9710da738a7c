"""Puts the service together; the only place that names concrete adapters."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from aquifer.storage.v1.remote_storage_service_pb2_grpc import (
    add_RemoteStorageServiceServicer_to_server,
)
from aquifer_core.clock import SystemClock
from aquifer_rpc.server import GrpcServer
from aquifer_rpc.supervised import SupervisedLoop

from aquifer_storage import __version__
from aquifer_storage.adapters.disk_cache import DiskCache
from aquifer_storage.adapters.file_key_ring import FileKeyRing
from aquifer_storage.adapters.filesystem import FilesystemObjectStore
from aquifer_storage.adapters.limits_file import LimitsFile
from aquifer_storage.adapters.s3 import S3ObjectStore
from aquifer_storage.adapters.s3_client import S3Options
from aquifer_storage.adapters.sweep_record import recorded
from aquifer_storage.domain.leftover_sweeper import LeftoverSweeper
from aquifer_storage.domain.limited_store import LimitedObjectStore
from aquifer_storage.domain.object_key import ObjectKeys
from aquifer_storage.domain.options import StorageOptions, TopicOptions
from aquifer_storage.domain.ports import KeyRing
from aquifer_storage.domain.remote_storage import RemoteStorage
from aquifer_storage.domain.store_check import StoreCheck
from aquifer_storage.domain.store_checks import STORE_CHECKS
from aquifer_storage.domain.upload_sweeper import StaleUploads, UploadSweeper
from aquifer_storage.domain.work_limits import Work, WorkLimits
from aquifer_storage.servicer import RemoteStorageServicer
from aquifer_storage.servicer.copy_stream import decode_copy_message
from aquifer_storage.settings import Backend, S3Settings, StorageSettings

_COPY: Final = "/aquifer.storage.v1.RemoteStorageService/CopyLogSegmentData"
_SWEEP_DEADLINE_S: Final = 3600.0


async def serve(settings: StorageSettings) -> None:
    """Serves until SIGTERM or SIGINT."""
    async with running_server(settings) as server:
        await server.run_until_signal()


@asynccontextmanager
async def running_server(settings: StorageSettings) -> AsyncIterator[GrpcServer]:
    """The whole service, started; `port` of the server says where."""
    async with AsyncExitStack() as stack:
        objects = object_store(settings)
        ring = key_ring(settings)
        probes = {"object store": objects.check}
        if ring is not None:
            await ring.check()
            probes["key ring"] = ring.check
        limits = await work_limits(settings, stack)
        storage = RemoteStorage(
            objects,
            options=storage_options(settings),
            key_prefix=settings.key_prefix,
            writer_version=__version__,
            key_ring=ring,
            held_chunks=disk_cache(settings),
            limits=limits,
        )
        stack.push_async_callback(storage.close)
        server = GrpcServer(
            settings.grpc,
            name="storage",
            probes=probes,
            decoders={_COPY: decode_copy_message},
        )
        server.add(
            add_RemoteStorageServiceServicer_to_server,
            RemoteStorageServicer(
                storage,
                backend=settings.backend,
                store_check=StoreCheck(
                    objects,
                    objects,
                    STORE_CHECKS,
                    clock=SystemClock(),
                    key_prefix=settings.key_prefix,
                ),
            ),
        )
        await stack.enter_async_context(upload_sweeping(settings, objects))
        await stack.enter_async_context(leftover_sweeping(settings, objects, limits))
        yield await stack.enter_async_context(server)


def object_store(settings: StorageSettings) -> S3ObjectStore | FilesystemObjectStore:
    """The store that is chosen."""
    if settings.backend is Backend.FILESYSTEM:
        return FilesystemObjectStore(settings.filesystem.root)
    return S3ObjectStore(s3_options(settings.s3))


def upload_sweeping(settings: StorageSettings, uploads: StaleUploads) -> SupervisedLoop:
    """What forgets uploads of crashed processes."""
    copying = settings.copying
    keys = ObjectKeys(settings.key_prefix)
    sweeper = UploadSweeper(uploads, keys, older_than_s=copying.sweep_uploads_after_s)
    return SupervisedLoop(
        "upload sweeper",
        sweeper.sweep,
        interval_s=copying.sweep_interval_s,
        run_deadline_s=max(copying.sweep_interval_s, _SWEEP_DEADLINE_S),
    )


def leftover_sweeping(
    settings: StorageSettings, objects: S3ObjectStore | FilesystemObjectStore, limits: WorkLimits
) -> SupervisedLoop:
    """What deletes objects of failed copies."""
    copying = settings.copying
    sweeper = LeftoverSweeper(
        LimitedObjectStore(objects, limits, Work.DELETE),
        objects,
        ObjectKeys(settings.key_prefix),
        older_than_s=copying.sweep_objects_after_s,
    )
    return SupervisedLoop(
        "leftover sweeper",
        recorded(sweeper.sweep, objects.backend),
        interval_s=copying.sweep_objects_interval_s,
        run_deadline_s=max(copying.sweep_objects_interval_s, _SWEEP_DEADLINE_S),
    )


async def work_limits(settings: StorageSettings, stack: AsyncExitStack) -> WorkLimits:
    """The limits of the kinds of work, which follow their file.

    Raises:
        InvalidConfigurationError: there is a file, and it is refused; later such a file is logged, and the limits stay.
    """
    limits = WorkLimits()
    if settings.limits_file is not None:
        file = LimitsFile(settings.limits_file, limits)
        await file.reload()
        loop = SupervisedLoop(
            "limits file", file.reload, interval_s=settings.limits_check_interval_s
        )
        await stack.enter_async_context(loop)
    return limits


def key_ring(settings: StorageSettings) -> KeyRing | None:
    """The key ring, if segments are encrypted."""
    path = settings.encryption.key_ring_file
    return None if path is None else FileKeyRing(path)


def disk_cache(settings: StorageSettings) -> DiskCache | None:
    """The disk cache, if there is one."""
    folder = settings.disk_cache.folder
    return None if folder is None else DiskCache(folder, settings.disk_cache.capacity_bytes)


def s3_options(settings: S3Settings) -> S3Options:
    """The settings as the adapter takes them."""
    return S3Options(
        endpoint=settings.endpoint,
        bucket=settings.bucket,
        access_key=settings.access_key,
        secret_key=settings.secret_key.get_secret_value(),
        region=settings.region,
        secure=settings.secure,
        ca_file=None if settings.ca_file is None else str(settings.ca_file),
        credentials_file=None
        if settings.credentials_file is None
        else str(settings.credentials_file),
        profile=settings.profile,
        virtual_host_style=settings.virtual_host_style,
        sign_payloads=settings.sign_payloads,
        create_bucket=settings.create_bucket,
        connections=settings.connections,
        connect_timeout_s=settings.connect_timeout_s,
        read_timeout_s=settings.read_timeout_s,
        retry_timeout_s=settings.retry_timeout_s,
    )


def storage_options(settings: StorageSettings) -> StorageOptions:
    """The settings as the domain takes them."""
    copying, reading = settings.copying, settings.reading
    return StorageOptions(
        chunk_size_bytes=copying.chunk_size_bytes,
        codec=copying.codec,
        zstd_level=copying.zstd_level,
        topics={
            pattern: TopicOptions(
                codec=topic.codec,
                zstd_level=topic.zstd_level,
                chunk_size_bytes=topic.chunk_size_bytes,
            )
            for pattern, topic in copying.topics.items()
        },
        cpu_threads=copying.cpu_threads,
        part_size_bytes=copying.part_size_bytes,
        single_put_max_bytes=copying.single_put_max_bytes,
        parallel_parts=copying.parallel_parts,
        copy_timeout_s=copying.timeout_s,
        upload_budget_bytes=copying.budget_bytes,
        chunk_cache_bytes=reading.chunk_cache_bytes,
        read_ahead_bytes=reading.read_ahead_bytes,
        read_size_bytes=reading.read_size_bytes,
        read_timeout_s=reading.read_timeout_s,
    )
