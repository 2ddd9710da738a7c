"""Uploads in parts to an S3 store, those that somebody else began included."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from aquifer_core.errors import RemoteResourceNotFoundError
from aquifer_core.formats.checksum import Buffer

from aquifer_storage.adapters.s3_client import S3Client
from aquifer_storage.adapters.s3_errors import (
    PreconditionFailedByStoreError,
    UnsupportedByStoreError,
    UploadGoneError,
)
from aquifer_storage.adapters.s3_writes import WrittenPart

_T = TypeVar("_T")


class S3Requests(Protocol):
    """Makes requests to a bucket."""

    async def request(
        self, operation: str, key: str, call: Callable[[S3Client], _T], sent_bytes: int = 0
    ) -> _T:
        """Make a request, again while the store does not answer and time is left."""
        ...

    async def size_bytes(self, key: str) -> int | None:
        """Size of an object; none when there is none."""
        ...


class S3Upload:
    """A multipart upload; implements `domain.ports.ObjectUpload`."""

    def __init__(self, store: S3Requests, key: str, upload_id: str) -> None:
        self._store = store
        self._key = key
        self._id = upload_id
        self._parts: dict[int, WrittenPart] = {}

    async def put_part(self, number: int, data: Buffer) -> None:
        """Write a part."""
        self._parts[number] = await self._store.request(
            "upload_part",
            self._key,
            lambda client: client.put_part(self._key, self._id, number, data),
            len(data),
        )

    async def complete(self) -> bool:
        """Make the object of the parts unless there is one."""
        try:
            await self._complete(replace=False)
        except PreconditionFailedByStoreError:
            return False
        except UnsupportedByStoreError:
            # A store without conditions: what can be done is to look before.
            if await self._store.size_bytes(self._key) is not None:
                return False
            await self._complete(replace=True)
        except UploadGoneError:
            # The answer of an attempt that succeeded may have been lost; the copy compares sizes.
            if await self._store.size_bytes(self._key) is None:
                raise
            return False
        return True

    async def _complete(self, *, replace: bool) -> None:
        parts = list(self._parts.values())
        await self._store.request(
            "complete_upload",
            self._key,
            lambda client: client.complete_upload(self._key, self._id, parts, replace=replace),
        )

    async def abort(self) -> None:
        """Forget the parts."""
        try:
            await self._store.request(
                "abort_upload",
                self._key,
                lambda client: client.abort_upload(self._key, self._id),
            )
        except (UploadGoneError, RemoteResourceNotFoundError):
            return


async def abort_stale_uploads(
    store: S3Requests, prefix: str, began_before_ms: int, is_ours: Callable[[str], bool]
) -> int:
    """Forget unfinished uploads under a prefix that are ours and began before; returns how many."""
    aborted, after, is_more = 0, "", True
    while is_more:
        page = await store.request(
            "list_uploads",
            prefix,
            lambda client: client.uploads_page(prefix, after),  # noqa: B023
        )
        for upload in page.uploads:
            if upload.began_ms < began_before_ms and is_ours(upload.key):
                await S3Upload(store, upload.key, upload.upload_id).abort()
                aborted += 1
        last = page.uploads[-1].key if page.uploads else after
        is_more = page.is_truncated and last > after
        after = last
    return aborted
