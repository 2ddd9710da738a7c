"""The stream of messages of a copy, as a segment to copy."""

from collections.abc import AsyncIterator
from typing import Final, TypeAlias

from aquifer.storage.v1 import remote_storage_service_pb2 as pb
from aquifer_core.errors import CorruptSegmentError, InvalidRequestError
from aquifer_core.formats.checksum import crc32c
from aquifer_core.segment import LogSegmentData, RemoteLogSegmentMetadata
from aquifer_rpc import convert
from aquifer_rpc.large_messages import MAX_DATA_BYTES, WireChunk, decode_chunk_or

_MAX_SMALL_PARTS_BYTES: Final = 64 << 20
_REQUIRED: Final = (
    pb.SEGMENT_PART_OFFSET_INDEX,
    pb.SEGMENT_PART_TIME_INDEX,
    pb.SEGMENT_PART_LEADER_EPOCHS,
    pb.SEGMENT_PART_SEGMENT,
)

CopyMessage: TypeAlias = pb.CopyLogSegmentDataRequest | WireChunk

decode_copy_message: Final = decode_chunk_or(
    pb.CopyLogSegmentDataRequest.FromString, pb.CopyLogSegmentDataRequest.CHUNK_FIELD_NUMBER
)
"""Reads a message of a copy; a chunk's bytes stay where they came to lie."""


class CopyStream:
    """The messages of one copy: spec, chunks of the parts in order, finish.

    The spec is read by `begin`, small parts by `receive`; the log's bytes stay in the stream until `chunks` is iterated, which makes this a
    `LogSource`. Every method raises `InvalidRequestError` for a message out of order or parts that do not match the spec, and
    `CorruptSegmentError` for a chunk that does not match its CRC.
    """

    def __init__(self, requests: AsyncIterator[CopyMessage]) -> None:
        self._requests = requests
        self._position = 0
        self._small_parts: dict[pb.SegmentPart.ValueType, int] = {}
        self.size_bytes = 0

    async def begin(self) -> RemoteLogSegmentMetadata:
        """Read the spec."""
        first = await self._next()
        if isinstance(first, WireChunk) or first.WhichOneof("message") != "spec":
            raise InvalidRequestError("the first message of a copy must be its spec")
        metadata = convert.segment_metadata_from_pb(first.spec.metadata, "spec.metadata")
        self._small_parts = _checked_sizes(first.spec)
        self.size_bytes = self._small_parts.pop(pb.SEGMENT_PART_SEGMENT)
        return metadata

    @property
    def small_bytes(self) -> int:
        """Size of all parts but the log."""
        return sum(self._small_parts.values())

    async def receive(self) -> LogSegmentData:
        """Read all parts but the log."""
        parts = {part: await self._part(part, size) for part, size in self._small_parts.items()}
        return LogSegmentData(
            offset_index=parts[pb.SEGMENT_PART_OFFSET_INDEX],
            time_index=parts[pb.SEGMENT_PART_TIME_INDEX],
            leader_epochs=parts[pb.SEGMENT_PART_LEADER_EPOCHS],
            transaction_index=parts.get(pb.SEGMENT_PART_TRANSACTION_INDEX),
            producer_snapshot=parts.get(pb.SEGMENT_PART_PRODUCER_SNAPSHOT),
            log_segment=self,
        )

    async def chunks(self) -> AsyncIterator[bytes | memoryview]:
        """Yield the log's bytes, then make sure that the copy was finished."""
        self._position = 0
        while self._position < self.size_bytes:
            # Not kept here: whoever waits for the next bytes has no use for these.
            yield await self._data(pb.SEGMENT_PART_SEGMENT, self.size_bytes)
        last = await self._next()
        if isinstance(last, WireChunk) or last.WhichOneof("message") != "finish":
            raise InvalidRequestError(
                f"the log was announced with {self.size_bytes} bytes, and then a copy must finish"
            )

    async def _part(self, part: pb.SegmentPart.ValueType, size_bytes: int) -> bytes:
        self._position, found = 0, []
        while self._position < size_bytes:
            found.append(await self._data(part, size_bytes))
        return b"".join(found)

    async def _data(self, part: pb.SegmentPart.ValueType, size_bytes: int) -> bytes | memoryview:
        """Return the next bytes of a part."""
        data = _checked_chunk(await self._next(), part, self._position, size_bytes)
        self._position += len(data)
        return data

    async def _next(self) -> CopyMessage:
        try:
            message = await anext(self._requests)
        except StopAsyncIteration:
            raise InvalidRequestError("the stream ended without finish") from None
        if isinstance(message, WireChunk) or message.WhichOneof("message") != "chunk":
            return message
        chunk = message.chunk  # with fields of a later version
        return WireChunk(chunk.part, chunk.position, chunk.data, chunk.crc32c)


def _checked_sizes(spec: pb.CopySpec) -> dict[pb.SegmentPart.ValueType, int]:
    sizes = {part.part: part.size_bytes for part in spec.parts}
    if len(sizes) != len(spec.parts) or pb.SEGMENT_PART_UNSPECIFIED in sizes:
        raise InvalidRequestError("spec.parts names a part twice, or one that is not specified")
    if not spec.parts or spec.parts[-1].part != pb.SEGMENT_PART_SEGMENT:
        raise InvalidRequestError("spec.parts must end with the log")
    missing = [_name(part) for part in _REQUIRED if part not in sizes]
    if missing:
        raise InvalidRequestError(f"spec.parts lacks {', '.join(missing)}")
    if min(sizes.values()) < 0:
        raise InvalidRequestError("spec.parts has a negative size")
    small_bytes = sum(sizes.values()) - sizes[pb.SEGMENT_PART_SEGMENT]
    if small_bytes > _MAX_SMALL_PARTS_BYTES:
        raise InvalidRequestError(
            f"the parts besides the log have {small_bytes} bytes, at most {_MAX_SMALL_PARTS_BYTES} are accepted"
        )
    return sizes


def _checked_chunk(
    message: CopyMessage,
    part: pb.SegmentPart.ValueType,
    position: int,
    size_bytes: int,
) -> bytes | memoryview:
    if not isinstance(message, WireChunk) or message.part != part:
        raise InvalidRequestError(
            f"{_name(part)} was announced with {size_bytes} bytes, {position} came before another message"
        )
    data = message.data
    if message.position != position or not 0 < len(data) <= MAX_DATA_BYTES:
        raise InvalidRequestError(
            f"{_name(part)}: a chunk of {len(data)} bytes at position {message.position}, expected up to "
            f"{MAX_DATA_BYTES} bytes at position {position}"
        )
    if position + len(data) > size_bytes:
        raise InvalidRequestError(f"{_name(part)} is longer than the {size_bytes} bytes announced")
    if crc32c(data) != message.crc32c:
        raise CorruptSegmentError(
            f"{_name(part)}: the chunk at position {position} was damaged on its way",
            metadata={"position": str(position)},
        )
    return data


def _name(part: pb.SegmentPart.ValueType) -> str:
    return pb.SegmentPart.Name(part) if part in pb.SegmentPart.values() else f"part {part}"
