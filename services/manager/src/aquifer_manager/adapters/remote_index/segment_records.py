"""Which segments an index file covers: `<first offset>.remoteSegments`.

A remote log index names segments by their ids alone. What a reader needs besides, their metadata, stands here, a record for each
segment, in the order of offsets: `length int32, crc int32, segment id 16 bytes, first offset int64, last offset int64, end int32,
flags int8`, then the metadata as protobuf. `length` counts what follows it, `crc` is the CRC-32C of what follows it, `end` is where the
segment's entries end in the remote log index, and flag 1 says that the segment may have aborted transactions. A record is written after
the entries that it covers: what lies behind the last record's `end` was never finished.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from aquifer.common.v1 import segment_pb2
from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats.checksum import Buffer, crc32c
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_rpc import convert

__all__ = ["RecordHead", "decode_record", "encode_record", "record_heads"]

_FRAME: Final = struct.Struct(">iI")
_BODY: Final = struct.Struct(">16sqqib")
_LENGTH_BYTES: Final = 4
_HEAD_BYTES: Final = _FRAME.size + _BODY.size
_MAY_HAVE_TRANSACTIONS: Final = 1


class RecordHead(NamedTuple):
    """A record without its metadata.

    Attributes:
        position: where the record starts.
        next_position: where it ends.
        first_offset: from here on the segment is the partition's.
        last_offset: up to here, inclusive; its metadata may reach further on both sides.
        index_end: where its entries end in the remote log index.
    """

    position: int
    next_position: int
    first_offset: int
    last_offset: int
    index_end: int
    may_have_transactions: bool


def encode_record(
    metadata: RemoteLogSegmentMetadata, *, first_offset: int, last_offset: int, index_end: int
) -> bytes:
    """One record, with length and CRC-32C in front."""
    flags = 0 if metadata.txn_index_empty else _MAY_HAVE_TRANSACTIONS
    raw_id = metadata.segment_id.id.raw
    body = _BODY.pack(raw_id, first_offset, last_offset, index_end, flags)
    body += convert.segment_metadata_to_pb(metadata).SerializeToString()
    return _FRAME.pack(_FRAME.size - _LENGTH_BYTES + len(body), crc32c(body)) + body


def record_heads(data: Buffer, position: int = 0) -> Iterator[RecordHead]:
    """Every record that is there as a whole; CRCs are not checked.

    Raises:
        CorruptIndexError: a length is impossible.
    """
    size_bytes = len(data)
    while position + _HEAD_BYTES <= size_bytes:
        length, _ = _FRAME.unpack_from(data, position)
        following = position + _LENGTH_BYTES + length
        if following < position + _HEAD_BYTES:
            raise CorruptIndexError(f"remote segments: record at position {position} is damaged")
        if following > size_bytes:
            return
        _, first, last, end, flags = _BODY.unpack_from(data, position + _FRAME.size)
        yield RecordHead(position, following, first, last, end, bool(flags))
        position = following


def decode_record(data: Buffer, head: RecordHead) -> RemoteLogSegmentMetadata:
    """The metadata of a record.

    Raises:
        CorruptIndexError: the record is damaged.
    """
    body = memoryview(data)[head.position + _FRAME.size : head.next_position]
    _, stored_crc = _FRAME.unpack_from(data, head.position)
    if crc32c(body) != stored_crc:
        raise CorruptIndexError(f"remote segments: record at position {head.position} is damaged")
    message = segment_pb2.RemoteLogSegmentMetadata.FromString(bytes(body[_BODY.size :]))
    return convert.segment_metadata_from_pb(message)
