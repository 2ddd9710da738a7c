"""The minio client with what an object store of ours needs beyond its public methods.

minio keeps single requests of a multipart upload and conditional headers to itself; its subclass may use them. They are the same
from 7.2.0 on, and the contract tests of the object store cover every one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from itertools import islice
from pathlib import Path
from typing import Final

import urllib3
from aquifer_core.errors import RemoteStorageUnavailableError
from minio.credentials.credentials import Credentials
from minio.credentials.providers import Provider, StaticProvider
from minio.datatypes import Object
from minio.error import S3Error
from urllib3.exceptions import IncompleteRead

from aquifer_storage.adapters.file_credentials import FileCredentials
from aquifer_storage.adapters.s3_connections import connection_pools
from aquifer_storage.adapters.s3_errors import RETRY_AFTER_MS
from aquifer_storage.adapters.s3_trust import RELOAD_INTERVAL_S, TrustedAuthorities
from aquifer_storage.adapters.s3_writes import CheckedWrites

PAGE_OBJECTS: Final = 1000
_NEVER_MS: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options:
    """How to reach a bucket.

    Attributes:
        endpoint: host:port; with https:// in front, or `secure`, over TLS.
        region: of the bucket; signatures need it.
        connections: connections and threads; more requests at once wait.
        connect_timeout_s: longest time to connect.
        read_timeout_s: longest silence of the store within a request; 256 KiB of a body must go out in it.
        retry_timeout_s: how long a request is tried again, counted from its first attempt.
        create_bucket: create the bucket when it is missing.
        ca_file: PEM authorities to trust, read again when the file changes; none: certifi's.
        ca_reload_interval_s: how often that file is looked at, at most.
        credentials_file: credentials as AWS tools share them, read again when it changes; none: the keys given.
        profile: section of that file.
        virtual_host_style: the bucket goes into the host name; none: as the endpoint has it, by path except at AWS.
        sign_payloads: signatures cover the SHA-256 of what is written, if there is no TLS; else only its CRC-32C.
    """

    endpoint: str
    bucket: str
    access_key: str
    secret_key: str
    region: str = "us-east-1"
    secure: bool = False
    connections: int = 16
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 30.0
    retry_timeout_s: float = 20.0
    create_bucket: bool = False
    ca_file: str | None = None
    ca_reload_interval_s: float = RELOAD_INTERVAL_S
    credentials_file: str | None = None
    profile: str = "default"
    virtual_host_style: bool | None = None
    sign_payloads: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedUpload:
    """An upload that was neither completed nor aborted."""

    key: str
    upload_id: str
    began_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadsPage:
    """Some unfinished uploads in the order of their keys, and whether there are more."""

    uploads: Sequence[UnfinishedUpload]
    is_truncated: bool


class S3Client(CheckedWrites):
    """Blocking requests to one bucket. A request is made once: retries belong to the caller."""

    def __init__(self, options: S3Options) -> None:
        secure = options.secure or options.endpoint.startswith("https://")
        super().__init__(
            options.endpoint.removeprefix("https://").removeprefix("http://").rstrip("/"),
            region=options.region,
            secure=secure,
            http_client=connection_pools(
                urllib3.Timeout(connect=options.connect_timeout_s, read=options.read_timeout_s),
                _trust(options) if secure else None,
                {
                    "num_pools": 4,
                    "maxsize": options.connections,
                    "retries": False,
                    "cert_reqs": "CERT_REQUIRED",
                },
            ),
            credentials=_credentials(options),
        )
        self.bucket = options.bucket
        self.sign_payloads = options.sign_payloads
        if options.virtual_host_style is not None:
            self._base_url.virtual_style_flag = options.virtual_host_style

    def credentials(self) -> Credentials | None:
        """Return what the next request is signed with; another object when it has changed."""
        return None if self._provider is None else self._provider.retrieve()

    def close(self) -> None:
        """Close idle connections; those in use are closed when their requests end."""
        self._http.clear()

    def abort_upload(self, key: str, upload_id: str) -> None:
        """Forget the parts."""
        self._abort_multipart_upload(self.bucket, key, upload_id)

    def upload_ids(self, key: str) -> list[str]:
        """Ids of the unfinished uploads of a key."""
        found = self._list_multipart_uploads(self.bucket, prefix=key, max_uploads=1000)
        return [str(upload.upload_id) for upload in found.uploads if upload.object_name == key]

    def uploads_page(self, prefix: str, after_key: str) -> UploadsPage:
        """List up to one page of unfinished uploads after those of a key."""
        found = self._list_multipart_uploads(
            self.bucket, prefix=prefix, key_marker=after_key or None, max_uploads=PAGE_OBJECTS
        )
        # An upload without a date is taken for a new one.
        uploads = [
            UnfinishedUpload(
                key=str(upload.object_name),
                upload_id=str(upload.upload_id),
                began_ms=_NEVER_MS
                if upload.initiated_time is None
                else int(upload.initiated_time.timestamp() * 1000),
            )
            for upload in found.uploads
        ]
        return UploadsPage(uploads=uploads, is_truncated=found.is_truncated)

    def get(self, key: str, position: int, length_bytes: int | None) -> bytes:
        """Read a range; nothing when it begins past the end."""
        try:
            response = self.open(key, position, length_bytes)
        except S3Error as error:
            if error.code == "InvalidRange":
                return b""
            raise
        try:
            return response.read(decode_content=False)
        finally:
            release(response)

    def get_with_etag(self, key: str) -> tuple[bytes, str | None]:
        """Read a whole object; also its ETag, none where the answer has none that tells its bytes."""
        response = self.open(key, 0, None)
        try:
            etag = response.headers.get("etag")
            is_strong = etag is not None and etag.startswith('"')
            return response.read(decode_content=False), etag if is_strong else None
        finally:
            release(response)

    def open(self, key: str, position: int, length_bytes: int | None) -> urllib3.BaseHTTPResponse:
        """Begin to read a range; the answer's connection must be given back.

        Raises:
            RemoteStorageUnavailableError: what comes is not that range, or in another form.
        """
        response = self.get_object(self.bucket, key, offset=position, length=length_bytes or 0)
        other = unasked(response, position, length_bytes)
        if other is not None:
            release(response)
            raise RemoteStorageUnavailableError(
                f"bytes of {key} from {position} on were asked for, {other} was answered",
                retry_after_ms=RETRY_AFTER_MS,
            )
        return response

    def size_bytes(self, key: str) -> int:
        """Size of an object."""
        return self.stat_object(self.bucket, key).size or 0

    def remove(self, key: str) -> None:
        """Delete an object."""
        self.remove_object(self.bucket, key)

    def list_page(self, prefix: str, start_after: str) -> list[Object]:
        """List up to one page of objects after a key."""
        found: Iterator[Object] = self.list_objects(
            self.bucket, prefix=prefix, recursive=True, start_after=start_after or None
        )
        return list(islice(found, PAGE_OBJECTS))

    def ensure_bucket(self, *, create: bool) -> bool:
        """Whether the bucket is there, made if need be."""
        if self.bucket_exists(self.bucket):
            return True
        if create:
            try:
                self.make_bucket(self.bucket)
            except S3Error as error:
                if error.code != "BucketAlreadyOwnedByYou":  # another process was faster
                    raise
        return create

    def time_ms(self) -> int | None:
        """Time at the store by the Date of an answer, taken for the middle of that second."""
        date = self._execute("HEAD", self.bucket).headers.get("date")
        if date is None:
            return None
        return int(parsedate_to_datetime(date).timestamp() * 1000) + 500


def modified_ms(listed: Object) -> int:
    """Return when a listed object was written; an object without a date is taken for a new one."""
    written = listed.last_modified
    return _NEVER_MS if written is None else int(written.timestamp() * 1000)


def _trust(options: S3Options) -> TrustedAuthorities:
    ca_file = None if options.ca_file is None else Path(options.ca_file)
    return TrustedAuthorities(ca_file, interval_s=options.ca_reload_interval_s)


def _credentials(options: S3Options) -> Provider:
    if options.credentials_file is not None:
        return FileCredentials(Path(options.credentials_file), options.profile)
    return StaticProvider(options.access_key, options.secret_key)


def unasked(
    response: urllib3.BaseHTTPResponse, position: int, length_bytes: int | None
) -> str | None:
    """What an answer is instead of the range that was asked for, as its head says; its bytes would pass for a damaged segment."""
    encoding = response.headers.get("content-encoding", "")
    if encoding not in ("", "identity", "aws-chunked"):
        return f"a body packed with {encoding}"
    if response.status == 206:
        found = response.headers.get("content-range", "")
        return None if found.startswith(f"bytes {position}-") else f"range {found!r}"
    is_whole = length_bytes is None or (response.length_remaining or 0) <= length_bytes
    return None if position == 0 and is_whole else f"the whole object with {response.status}"


def read_piece(response: urllib3.BaseHTTPResponse, length_bytes: int) -> bytes:
    """Read the next bytes of an answer; fewer only at its announced end.

    Raises:
        IncompleteRead: the connection ended before.
    """
    data = response.read(length_bytes, False)
    if len(data) < length_bytes and response.length_remaining:
        raise IncompleteRead(len(data), response.length_remaining)
    return data


def release(response: urllib3.BaseHTTPResponse) -> None:
    """Give the connection of an answer back, or close it when the answer was not read to its end."""
    if response.length_remaining:
        response.close()
    response.release_conn()
