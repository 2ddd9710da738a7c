"""Writes whose bodies the store compares with a checksum before it keeps them, and says so.

Nothing else finds a body that was damaged on its way: some stores do not look at the digest in a request's signature. The checksum is
the CRC-32C that S3 has for this. A store that does not know it gets Content-MD5, which is as old as S3, from then on.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, cast
from xml.etree import ElementTree

import structlog
from aquifer_core.errors import RemoteStorageUnavailableError
from aquifer_core.formats.checksum import Buffer, crc32c
from minio import Minio
from minio.credentials.credentials import Credentials
from minio.datatypes import CompleteMultipartUploadResult
from minio.error import S3Error, ServerError
from minio.helpers import DictType
from urllib3 import BaseHTTPResponse

from aquifer_storage.adapters.s3_errors import DAMAGED, RETRY_AFTER_MS

logger = structlog.get_logger(__name__)

CRC32C_HEADER: Final = "x-amz-checksum-crc32c"
_ALGORITHM_HEADER: Final = "x-amz-checksum-algorithm"
_MD5_HEADER: Final = "Content-MD5"
# Never sent: takes a digest past the library to where its requests are signed.
_SHA256_HEADER: Final = "aquifer-sha256"
_CONTENT_TYPE: Final = "application/octet-stream"
_NAMESPACE: Final = "http://s3.amazonaws.com/doc/2006-03-01/"
# How stores answer to a header that they do not know.
_UNKNOWN_HEADER: Final = frozenset({"NotImplemented", "InvalidArgument", "InvalidRequest"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPart:
    """A part that the store has.

    Attributes:
        crc32c: in Base64, as the store has confirmed it; none when it does not know it.
    """

    number: int
    etag: str
    crc32c: str | None


class CheckedWrites(Minio):
    """The requests of the minio client that carry a body."""

    bucket: str
    sign_payloads: bool
    """Whether signatures cover the SHA-256 of bodies where there is no TLS; else only their checksum."""
    _proved_crc32c = False
    """Whether the store has confirmed the checksum of what was written last."""
    _knows_crc32c = True
    """Whether the store does, as far as is known."""

    def put(self, key: str, data: Buffer, *, instead_of: str | None = None) -> bool:
        """Write an object; returns whether the store has confirmed its checksum.

        Args:
            key: the object.
            data: its bytes.
            instead_of: ETag of the object to replace; if another or none is there, the store answers 412, or 404.
        """
        headers: DictType = {"Content-Type": _CONTENT_TYPE}
        if instead_of is not None:
            headers["If-Match"] = instead_of
        answer = self._write(key, data, headers)
        return answer.headers.get(CRC32C_HEADER) == _crc32c(data)

    def create(self, key: str, data: Buffer, sha256: str | None = None) -> bool:
        """Write an object unless there is one, which the store answers with 412; returns whether it has confirmed the checksum.

        What was written cannot be written again with another checksum. So until the store has confirmed one, it gets the one that
        every store knows as well.
        """
        headers: DictType = {"Content-Type": _CONTENT_TYPE, "If-None-Match": "*"}
        if not self._knows_crc32c:
            self._send("PUT", key, data, {**headers, _MD5_HEADER: _md5(data)}, sha256=sha256)
            return False
        checksum, is_proven = _crc32c(data), self._proved_crc32c
        checked: DictType = {**headers, CRC32C_HEADER: checksum}
        if not is_proven:
            checked[_MD5_HEADER] = _md5(data)
        try:
            answer = self._send("PUT", key, data, checked, sha256=sha256)
        except S3Error as error:
            if error.code not in _UNKNOWN_HEADER:
                raise
            self._send("PUT", key, data, {**headers, _MD5_HEADER: _md5(data)}, sha256=sha256)
            self._forget_crc32c()
            return False
        confirmed = answer.headers.get(CRC32C_HEADER)
        self._proved_crc32c = confirmed == checksum
        if confirmed == checksum:
            return True
        if confirmed is None:
            self._forget_crc32c()
        if confirmed is not None or is_proven:
            # Asked again, the store says that there is one, and the caller looks at it.
            raise _other_checksum(key, data, confirmed, checksum)
        return False

    def begin_upload(self, key: str) -> str:
        """Begin an upload in parts; returns its id."""
        if self._knows_crc32c:
            try:
                return self._create_multipart_upload(
                    self.bucket, key, {_ALGORITHM_HEADER: "CRC32C"}
                )
            except S3Error as error:
                if error.code not in _UNKNOWN_HEADER:
                    raise
        return self._create_multipart_upload(self.bucket, key, {})

    def put_part(self, key: str, upload_id: str, number: int, data: Buffer) -> WrittenPart:
        """Write a part."""
        answer = self._write(key, data, {}, {"partNumber": str(number), "uploadId": upload_id})
        etag = answer.headers.get("etag", "").replace('"', "")
        return WrittenPart(number=number, etag=etag, crc32c=answer.headers.get(CRC32C_HEADER))

    def complete_upload(
        self, key: str, upload_id: str, parts: Sequence[WrittenPart], *, replace: bool
    ) -> None:
        """Make an object of the parts; without `replace` unless there is one, which is answered with 412."""
        body = _parts_document(parts)
        headers: DictType = {"Content-Type": "application/xml", _MD5_HEADER: _md5(body)}
        if not replace:
            headers["If-None-Match"] = "*"
        answer = self._send("POST", key, body, headers, {"uploadId": upload_id})
        # S3 may fail after it has answered 200; the body tells.
        if not CompleteMultipartUploadResult(answer).etag:
            raise ServerError("the upload was answered with 200 and an error", 500)

    def refuses_damage(self, key: str, data: Buffer) -> bool:
        """Whether the store refuses a body that does not match its checksum."""
        other = b"other"
        wrong: DictType = {_MD5_HEADER: _md5(other)}
        if self._knows_crc32c:
            wrong = {CRC32C_HEADER: _crc32c(other)}
        try:
            self._send("PUT", key, data, wrong)
        except S3Error as error:
            if error.code in DAMAGED:
                return True
            raise  # refused for another reason, which says nothing of this
        return False

    def _write(
        self, key: str, data: Buffer, headers: DictType, query: DictType | None = None
    ) -> BaseHTTPResponse:
        if self._knows_crc32c:
            answer = self._write_with_crc32c(key, data, headers, query)
            if answer is not None:
                return answer
        answer = self._send("PUT", key, data, {**headers, _MD5_HEADER: _md5(data)}, query)
        self._forget_crc32c()
        return answer

    def _forget_crc32c(self) -> None:
        self._proved_crc32c = False
        if self._knows_crc32c:
            self._knows_crc32c = False
            logger.warning(
                "object_store_does_not_confirm_crc32c", bucket=self.bucket, instead="Content-MD5"
            )

    def _write_with_crc32c(
        self, key: str, data: Buffer, headers: DictType, query: DictType | None
    ) -> BaseHTTPResponse | None:
        """Write a body; none when the store does not know the checksum."""
        checksum = _crc32c(data)
        try:
            answer = self._send("PUT", key, data, {**headers, CRC32C_HEADER: checksum}, query)
        except S3Error as error:
            if error.code in _UNKNOWN_HEADER:
                return None
            raise
        confirmed = answer.headers.get(CRC32C_HEADER)
        if confirmed is None:
            return None
        if confirmed != checksum:
            raise _other_checksum(key, data, confirmed, checksum)
        self._proved_crc32c = True
        return answer

    def _send(
        self,
        method: str,
        key: str,
        data: Buffer,
        headers: DictType,
        query: DictType | None = None,
        *,
        sha256: str | None = None,
    ) -> BaseHTTPResponse:
        # The library declares bytes; what it does with them works for any buffer.
        body = cast(bytes, data)
        if sha256 is not None:
            headers = {**headers, _SHA256_HEADER: sha256}
        return self._execute(
            method, self.bucket, key, body=body, headers=headers, query_params=query
        )

    def _build_headers(
        self,
        host: str,
        headers: DictType | None = None,
        body: bytes | None = None,
        creds: Credentials | None = None,
    ) -> tuple[DictType, datetime]:
        """Sign the digest of a body where that protects it and none where a checksum does; the library digests each."""
        headers = dict(headers or {})
        known = headers.pop(_SHA256_HEADER, None)
        if not body or creds is None or not {CRC32C_HEADER, _MD5_HEADER} & headers.keys():
            return super()._build_headers(host, headers, body, creds)
        built, date = super()._build_headers(host, headers, None, creds)
        built["Content-Length"] = str(len(body))
        is_signed = self.sign_payloads and not self._base_url.is_https
        digest = (known or hashlib.sha256(body).hexdigest()) if is_signed else "UNSIGNED-PAYLOAD"
        built["x-amz-content-sha256"] = digest
        return built, date


def _parts_document(parts: Sequence[WrittenPart]) -> bytes:
    root = ElementTree.Element("CompleteMultipartUpload", xmlns=_NAMESPACE)
    for part in sorted(parts, key=lambda part: part.number):
        element = ElementTree.SubElement(root, "Part")
        ElementTree.SubElement(element, "PartNumber").text = str(part.number)
        ElementTree.SubElement(element, "ETag").text = f'"{part.etag}"'
        if part.crc32c is not None:
            ElementTree.SubElement(element, "ChecksumCRC32C").text = part.crc32c
    return ElementTree.tostring(root)


def _other_checksum(
    key: str, data: Buffer, confirmed: str | None, sent: str
) -> RemoteStorageUnavailableError:
    return RemoteStorageUnavailableError(
        f"the store has {len(data)} bytes of {key} with CRC-32C {confirmed}, sent was {sent}",
        retry_after_ms=RETRY_AFTER_MS,
    )


def _crc32c(data: Buffer) -> str:
    return base64.b64encode(crc32c(data).to_bytes(4, "big")).decode()


def _md5(data: Buffer) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
