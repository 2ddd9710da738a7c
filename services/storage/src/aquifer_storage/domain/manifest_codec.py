"""Manifests as the store has them: JSON documents with a checksum."""

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Final

from aquifer_core.errors import AquiferError, CorruptSegmentError, ErrorReason, PreconditionError
from aquifer_core.ids import KafkaUuid, RemoteLogSegmentId, TopicIdPartition
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState

from aquifer_storage.domain.envelope import Envelope, WrappedKey
from aquifer_storage.domain.json_fields import JsonFields
from aquifer_storage.domain.manifest import BundlePart, Manifest, PartLocation, StoredLog

FORMAT_VERSION: Final = 2
"""The newest that is read. What needs no newer one is written as version 1, which earlier services read as well."""
LARGEST_MARK_BYTES: Final = 512
"""What a failed copy puts in its manifest's place is smaller; manifests are larger."""
_WITHOUT_BUNDLE: Final = 1
_WITH_BUNDLE: Final = 2
_MAX_BUNDLE_BYTES: Final = (1 << 31) - 1
_ABANDONED: Final = "abandoned"
_BUNDLE: Final = "bundle"
_ENCRYPTION: Final = "encryption"
"""The last field before there were checksums."""
_CHECKSUM: Final = "checksum"
_END: Final = b"\n}"


def encode_manifest(manifest: Manifest) -> bytes:
    """Encode a manifest; equal manifests give equal bytes."""
    log = manifest.log
    bundle = manifest.bundle
    document: dict[str, object] = {
        "format_version": _WITHOUT_BUNDLE if bundle is None else _WITH_BUNDLE,
        "writer_version": manifest.writer_version,
        "metadata": _metadata_document(manifest.metadata),
        "log": {
            "original_bytes": log.original_bytes,
            "stored_bytes": log.stored_bytes,
            "sha256": log.sha256,
            "chunk_count": log.chunk_count,
            "codec": log.codec,
        },
        "indexes": {
            str(part): {
                "position": location.position,
                "size_bytes": location.size_bytes,
                "sha256": location.sha256,
            }
            for part, location in manifest.parts.items()
        },
        _ENCRYPTION: _encryption_document(manifest.encryption),
    }
    if bundle is not None:
        document[_BUNDLE] = base64.b64encode(bundle).decode()
    return _checksummed(document)


def with_envelope(data: bytes, envelope: Envelope) -> bytes:
    """Replace the envelope of an encoded manifest and nothing else: what this version does not know of stays."""
    document = json.loads(data)
    document.pop(_CHECKSUM, None)
    document[_ENCRYPTION] = _encryption_document(envelope)
    return _checksummed(document)


def encode_abandoned(reason: str) -> bytes:
    """Encode what a failed copy puts in a manifest's place while it deletes what it wrote.

    It makes another copy of the same segment id fail, which might else write its manifest between the check and the deletion.
    """
    return _dumped({"format_version": _WITHOUT_BUNDLE, _ABANDONED: reason})


def decode_manifest(data: bytes, key: str) -> Manifest | None:
    """Decode a manifest; none for one that says its copy was abandoned.

    Raises:
        CorruptSegmentError: the document is malformed or contradicts itself.
        PreconditionError: a newer version wrote it.
    """
    fields = JsonFields.parse(data, f"manifest {key}")
    if fields.has(_CHECKSUM):
        if not _is_intact(data, fields.sha256(_CHECKSUM)):
            raise CorruptSegmentError(f"manifest {key} does not match its checksum")
    elif fields.names()[-1:] not in ([_ENCRYPTION], [_ABANDONED]):
        raise CorruptSegmentError(f"manifest {key} has no checksum where it has another field")
    version = fields.integer("format_version", minimum=1)
    if version > FORMAT_VERSION:
        raise PreconditionError(
            f"manifest {key} has format version {version}; this service reads up to {FORMAT_VERSION}",
            reason=ErrorReason.SCHEMA_MISMATCH,
            metadata={"found": str(version), "expected": str(FORMAT_VERSION)},
        )
    if fields.has(_ABANDONED):
        return None
    try:
        parts = _decode_parts(fields.fields("indexes"))
        return Manifest(
            metadata=_decode_metadata(fields.fields("metadata")),
            log=_decode_log(fields.fields("log")),
            parts=parts,
            bundle=_decode_bundle(fields, parts) if version == _WITH_BUNDLE else None,
            writer_version=fields.text("writer_version"),
            encryption=_decode_encryption(fields),
        )
    except CorruptSegmentError:
        raise
    except AquiferError as error:
        raise CorruptSegmentError(f"manifest {key}: {error.message}") from error


def _metadata_document(metadata: RemoteLogSegmentMetadata) -> dict[str, object]:
    partition = metadata.topic_id_partition
    custom = metadata.custom_metadata
    return {
        "topic_id": str(partition.topic_id),
        "topic": partition.topic,
        "partition": partition.partition,
        "segment_id": str(metadata.segment_id.id),
        "start_offset": metadata.start_offset,
        "end_offset": metadata.end_offset,
        "broker_id": metadata.broker_id,
        "max_timestamp_ms": metadata.max_timestamp_ms,
        "event_timestamp_ms": metadata.event_timestamp_ms,
        "segment_size_bytes": metadata.segment_size_bytes,
        "segment_leader_epochs": {
            str(epoch): offset for epoch, offset in metadata.segment_leader_epochs.items()
        },
        "state": metadata.state.name,
        "custom_metadata": None if custom is None else custom.hex(),
        "txn_index_empty": metadata.txn_index_empty,
    }


def _decode_metadata(fields: JsonFields) -> RemoteLogSegmentMetadata:
    epochs = fields.fields("segment_leader_epochs")
    partition = TopicIdPartition(
        topic_id=KafkaUuid.parse(fields.text("topic_id")),
        topic=fields.text("topic"),
        partition=fields.integer("partition"),
    )
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(partition, KafkaUuid.parse(fields.text("segment_id"))),
        start_offset=fields.integer("start_offset"),
        end_offset=fields.integer("end_offset"),
        broker_id=fields.integer("broker_id"),
        max_timestamp_ms=fields.integer("max_timestamp_ms"),
        event_timestamp_ms=fields.integer("event_timestamp_ms"),
        segment_size_bytes=fields.integer("segment_size_bytes"),
        segment_leader_epochs={
            epochs.key_as_integer(key): epochs.integer(key) for key in epochs.names()
        },
        state=fields.member("state", RemoteLogSegmentState),
        custom_metadata=fields.hex_or_none("custom_metadata"),
        txn_index_empty=fields.boolean("txn_index_empty"),
    )


def _decode_log(fields: JsonFields) -> StoredLog:
    return StoredLog(
        original_bytes=fields.integer("original_bytes", minimum=0),
        stored_bytes=fields.integer("stored_bytes", minimum=0),
        sha256=fields.sha256("sha256"),
        chunk_count=fields.integer("chunk_count", minimum=0),
        codec=fields.text("codec"),
    )


def _decode_parts(fields: JsonFields) -> dict[BundlePart, PartLocation]:
    """Decode the locations of the parts; parts that this version does not know are left out."""
    known = {str(part) for part in BundlePart}
    parts = {}
    for name in fields.names():
        location = fields.fields(name)
        if name in known:
            parts[BundlePart(name)] = PartLocation(
                position=location.integer("position", minimum=0, maximum=_MAX_BUNDLE_BYTES),
                size_bytes=location.integer("size_bytes", minimum=0, maximum=_MAX_BUNDLE_BYTES),
                sha256=location.sha256("sha256"),
            )
    if BundlePart.REMOTE_LOG_INDEX not in parts:
        raise CorruptSegmentError(f"{fields.where} has no remote log index")
    return parts


def _decode_bundle(fields: JsonFields, parts: Mapping[BundlePart, PartLocation]) -> bytes:
    """Decode the index bundle that lies in a manifest."""
    if not fields.has(_CHECKSUM):
        raise CorruptSegmentError(f"{fields.where} has no checksum")
    bundle = fields.base64(_BUNDLE)
    for part, location in parts.items():
        if location.position + location.size_bytes > len(bundle):
            raise CorruptSegmentError(
                f"{fields.where}: {part} reaches past the {len(bundle)} bytes of the index bundle"
            )
    return bundle


def _encryption_document(envelope: Envelope | None) -> dict[str, str] | None:
    if envelope is None:
        return None
    return {
        "cipher": envelope.cipher,
        "key_id": envelope.key.key_id,
        "wrapping": envelope.key.algorithm,
        "wrapped_key": envelope.key.data.hex(),
    }


def _decode_encryption(fields: JsonFields) -> Envelope | None:
    if fields.is_null(_ENCRYPTION):
        return None
    envelope = fields.fields(_ENCRYPTION)
    wrapped = WrappedKey(
        key_id=envelope.text("key_id"),
        algorithm=envelope.text("wrapping"),
        data=envelope.hex("wrapped_key"),
    )
    return Envelope(cipher=envelope.text("cipher"), key=wrapped)


def _dumped(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, indent=1).encode()


def _checksummed(document: Mapping[str, object]) -> bytes:
    """Encode a document with its checksum, the SHA-256 of what it is without, as its last field."""
    plain = _dumped(document)
    return plain.removesuffix(_END) + _end_with(hashlib.sha256(plain).hexdigest())


def _is_intact(data: bytes, checksum: str) -> bool:
    end = _end_with(checksum)
    plain = data.removesuffix(end) + _END
    return data.endswith(end) and hashlib.sha256(plain).hexdigest() == checksum


def _end_with(checksum: str) -> bytes:
    return f',\n "{_CHECKSUM}": "{checksum}"'.encode() + _END
