"""Objects in a bucket of an S3 store."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Final, TypeVar

import structlog
from aquifer_core.clock import SystemClock
from aquifer_core.errors import RemoteResourceNotFoundError, RemoteStorageUnavailableError
from aquifer_core.formats.checksum import Buffer
from aquifer_core.ports import Clock
from minio.datatypes import Object

from aquifer_storage.adapters.request_record import RequestTotals
from aquifer_storage.adapters.s3_client import (
    PAGE_OBJECTS,
    S3Client,
    S3Options,
    modified_ms,
    read_piece,
    release,
)
from aquifer_storage.adapters.s3_errors import (
    RETRY_AFTER_MS,
    PastEndError,
    PreconditionFailedByStoreError,
    RefusedByStoreError,
    UnsupportedByStoreError,
    translated,
)
from aquifer_storage.adapters.s3_retries import RequestLimits, Retries
from aquifer_storage.adapters.s3_uploads import S3Upload, abort_stale_uploads
from aquifer_storage.adapters.worker_threads import WorkerThreads
from aquifer_storage.domain.ports import ObjectInfo, ObjectUpload, Written

logger = structlog.get_logger(__name__)

_T = TypeVar("_T")


class S3ObjectStore:
    """Objects in one bucket; implements `domain.ports.ObjectStore`.

    Deletes one by one: batches are refused by some stores, and a segment has three objects.

    Connections are waited for here and not in a thread: the reads that have them would wait for that thread. Reads in pieces, which
    keep theirs at their reader's pace, have three in four at most.
    """

    backend: Final = "s3"

    def __init__(self, options: S3Options, *, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._client = S3Client(options)
        self._limits = RequestLimits(
            self.backend,
            most=options.connections,
            patience_s=options.retry_timeout_s,
            clock=self._clock,
        )
        self._connections = asyncio.Semaphore(options.connections)
        self._read_connections = asyncio.Semaphore(max(1, options.connections * 3 // 4))
        self._threads = WorkerThreads(options.connections, "s3")
        self._knows_conditions = True
        self.totals = RequestTotals(self.backend)

    async def put(self, key: str, data: Buffer) -> Written:
        """Write an object, replacing what was there."""
        is_confirmed = await self.request(
            "put_object", key, lambda client: client.put(key, data), len(data)
        )
        return Written.CONFIRMED if is_confirmed else Written.YES

    async def create(self, key: str, data: Buffer, *, sha256: str | None = None) -> Written:
        """Write an object unless there is one; with a store that has no conditions, unless there was one just before."""
        if self._knows_conditions:
            try:
                is_confirmed = await self.request(
                    "put_object", key, lambda client: client.create(key, data, sha256), len(data)
                )
            except PreconditionFailedByStoreError:
                return Written.NOT
            except UnsupportedByStoreError as error:
                logger.warning("object_store_has_no_conditional_writes", error=error.message)
            else:
                return Written.CONFIRMED if is_confirmed else Written.YES
        if await self.size_bytes(key) is not None:
            return Written.NOT
        written = await self.put(key, data)
        self._knows_conditions = False
        return written

    async def replace(self, key: str, data: Buffer, *, found: bytes) -> Written:
        """Write an object in place of the one that was found, on the condition that it is still there, where the store knows such."""
        try:
            there, etag = await self.request(
                "get_object", key, lambda client: client.get_with_etag(key)
            )
            if there != found:
                return Written.NOT
            is_confirmed = await self.request(
                "put_object", key, lambda client: client.put(key, data, instead_of=etag), len(data)
            )
        except (PreconditionFailedByStoreError, RemoteResourceNotFoundError):
            return Written.NOT
        except UnsupportedByStoreError as error:
            logger.warning("object_store_has_no_conditional_writes", error=error.message)
            return await self.put(key, data)
        return Written.CONFIRMED if is_confirmed else Written.YES

    async def start_upload(self, key: str, part_size_bytes: int) -> ObjectUpload:
        """Begin an object of many parts."""
        upload_id = await self.request(
            "create_upload", key, lambda client: client.begin_upload(key)
        )
        return S3Upload(self, key, upload_id)

    async def abort_uploads(self, key: str) -> int:
        """Forget every unfinished upload of a key; stores that cannot list them have none to show."""
        try:
            upload_ids = await self.request(
                "list_uploads", key, lambda client: client.upload_ids(key)
            )
        except UnsupportedByStoreError as error:
            logger.warning("object_store_cannot_list_uploads", key=key, error=error.message)
            return 0
        for upload_id in upload_ids:
            await S3Upload(self, key, upload_id).abort()
        return len(upload_ids)

    async def abort_stale_uploads(
        self, prefix: str, older_than_s: float, is_ours: Callable[[str], bool]
    ) -> int:
        """Forget uploads that were begun longer ago, of keys under a prefix that are ours; returns how many.

        Their age is by the store's clock; nothing is swept while it does not tell its time.
        """
        now_ms = await self.store_time_ms()
        if now_ms is None:
            logger.warning("uploads_not_swept", reason="the store does not tell its time")
            return 0
        began_before_ms = now_ms - int(older_than_s * 1000)
        try:
            return await abort_stale_uploads(self, prefix, began_before_ms, is_ours)
        except UnsupportedByStoreError as error:
            logger.warning("object_store_cannot_list_uploads", key=prefix, error=error.message)
            return 0

    async def get(self, key: str, position: int = 0, length_bytes: int | None = None) -> bytes:
        """Read a range of an object."""
        if length_bytes == 0:
            return b""
        return await self.request(
            "get_object", key, lambda client: client.get(key, position, length_bytes)
        )

    async def read(
        self, key: str, position: int, lengths_bytes: Sequence[int]
    ) -> AsyncGenerator[bytes, None]:
        """Read adjacent ranges with one request, which goes on where it was cut off."""
        retries = Retries(self._options.retry_timeout_s, self._clock)
        done = 0
        while done < len(lengths_bytes):
            credentials = self._client.credentials()
            start = position + sum(lengths_bytes[:done])
            ranges = self._read_once(key, start, lengths_bytes[done:], retries.attempt)
            try:
                async with aclosing(ranges):
                    async for data in ranges:
                        yield data
                        done += 1
            except PastEndError:
                for _ in lengths_bytes[done:]:
                    yield b""
                return
            except RemoteStorageUnavailableError as error:
                is_resigned = credentials is not self._client.credentials()
                await retries.pause(error, is_resigned=is_resigned)

    async def size_bytes(self, key: str) -> int | None:
        """Size of an object; none when there is none.

        A 404 to HEAD has no text that tells who sent it, a proxy for example. What is deleted for an object that is not there needs
        the store itself to say so.
        """
        for _ in range(2):
            try:
                return await self.request("head_object", key, lambda client: client.size_bytes(key))
            except RemoteResourceNotFoundError:
                pass
            try:
                await self.get(key, 0, 1)
            except RemoteResourceNotFoundError:
                return None
        raise RemoteStorageUnavailableError(
            f"{key} can be read, but is not there when its size is asked for",
            retry_after_ms=RETRY_AFTER_MS,
        )

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, in this order."""
        for key in keys:
            await self._delete(key)

    async def list_objects(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Objects whose keys begin with a prefix, in the order of their keys."""
        last, is_more = "", True
        while is_more:
            page = await self._page(prefix, last)
            for found in page:
                last = str(found.object_name)
                yield ObjectInfo(
                    key=last, size_bytes=found.size or 0, modified_ms=modified_ms(found)
                )
            is_more = len(page) == PAGE_OBJECTS

    async def check(self) -> None:
        """Return when the bucket can be reached; makes it when it is missing and the options say so."""
        options = self._options
        if not await self.request(
            "head_bucket", "", lambda client: client.ensure_bucket(create=options.create_bucket)
        ):
            raise RefusedByStoreError(
                f"bucket {options.bucket} does not exist at {options.endpoint}"
            )

    async def store_time_ms(self) -> int | None:
        """Time at the store, in whole seconds; none when it does not tell."""
        return await self.request("head_bucket", "", lambda client: client.time_ms())

    async def refuses_damage(self, key: str) -> bool:
        """Whether the store finds a body that is not what was sent."""
        data = b"damaged on its way"
        return await self.request(
            "put_object", key, lambda client: client.refuses_damage(key, data), len(data)
        )

    async def close(self) -> None:
        """Release threads and connections."""
        await self._limits.close()
        self._threads.close()
        self._client.close()

    async def request(
        self,
        operation: str,
        key: str,
        call: Callable[[S3Client], _T],
        sent_bytes: int = 0,
    ) -> _T:
        """Make a request in a thread, again while the store does not answer and time is left."""
        retries = Retries(self._options.retry_timeout_s, self._clock)
        while True:
            credentials = self._client.credentials()
            try:
                async with self._limits.of(operation).slot(), self._connections:
                    with self.totals.record(operation, key, attempt=retries.attempt) as record:
                        answer = await self._run(operation, key, call)
                        record.sent(sent_bytes)
                        record.received(len(answer) if isinstance(answer, bytes) else 0)
                return answer
            except RemoteStorageUnavailableError as error:
                is_resigned = credentials is not self._client.credentials()
                await retries.pause(error, is_resigned=is_resigned)

    async def _delete(self, key: str) -> None:
        try:
            await self.request("delete_object", key, lambda client: client.remove(key))
        except RemoteResourceNotFoundError:
            return

    async def _page(self, prefix: str, start_after: str) -> list[Object]:
        return await self.request(
            "list_objects", prefix, lambda client: client.list_page(prefix, start_after)
        )

    async def _read_once(
        self, key: str, position: int, lengths_bytes: Sequence[int], attempt: int
    ) -> AsyncGenerator[bytes, None]:
        """Read ranges with one request; its place is given back when the answer begins, since the reader sets the pace then."""
        limit = self._limits.of("get_object")
        async with self._read_connections, AsyncExitStack() as stack:
            async with limit.slot():
                await stack.enter_async_context(self._connections)
                record = stack.enter_context(self.totals.record("get_object", key, attempt=attempt))
                total_bytes = sum(lengths_bytes)
                response = await self._run(
                    "get_object", key, lambda client: client.open(key, position, total_bytes)
                )
                stack.callback(release, response)
            try:
                for length_bytes in lengths_bytes:
                    data = await self._run(
                        "get_object",
                        key,
                        lambda _: read_piece(response, length_bytes),  # noqa: B023
                    )
                    record.received(len(data))
                    yield data
            except RemoteStorageUnavailableError as error:
                limit.lower(error)
                raise

    async def _run(self, operation: str, key: str, call: Callable[[S3Client], _T]) -> _T:
        try:
            return await self._threads.run(call, self._client)
        except Exception as error:
            raise translated(error, operation, key) from error
