"""A segment as the messages of a copy, and pieces of a stream back as bytes."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from typing import Final, Protocol, TypeAlias

from aquifer.storage.v1 import remote_storage_service_pb2 as pb
from aquifer_core.errors import CorruptSegmentError
from aquifer_core.formats.checksum import crc32c
from aquifer_core.segment import LogSegmentData, RemoteLogSegmentMetadata
from aquifer_rpc import convert
from aquifer_rpc.large_messages import MAX_DATA_BYTES, WireChunk, encode_chunk_or

CopyMessage: TypeAlias = pb.CopyLogSegmentDataRequest | WireChunk

encode_copy_message: Final = encode_chunk_or(
    pb.CopyLogSegmentDataRequest.SerializeToString,
    pb.CopyLogSegmentDataRequest.CHUNK_FIELD_NUMBER,
)


class Piece(Protocol):
    """What the messages of every byte stream have."""

    @property
    def position(self) -> int:
        """Position of the first byte."""
        ...

    @property
    def data(self) -> bytes | memoryview:
        """The bytes; a message of protobuf copies them each time."""
        ...

    @property
    def crc32c(self) -> int:
        """Their CRC-32C."""
        ...


async def copy_messages(
    metadata: RemoteLogSegmentMetadata, data: LogSegmentData
) -> AsyncGenerator[CopyMessage, None]:
    """The messages of a copy in the order of the contract: spec, the indexes, the log, finish."""
    small = small_parts(data)
    specs = [pb.PartSpec(part=part, size_bytes=len(content)) for part, content in small]
    specs.append(pb.PartSpec(part=pb.SEGMENT_PART_SEGMENT, size_bytes=data.log_segment.size_bytes))
    spec = pb.CopySpec(metadata=convert.segment_metadata_to_pb(metadata), parts=specs)
    yield pb.CopyLogSegmentDataRequest(spec=spec)
    for part, content in small:
        for position in range(0, len(content), MAX_DATA_BYTES):
            yield _chunk(part, position, content[position : position + MAX_DATA_BYTES])
    position = 0
    async with AsyncExitStack() as stack:
        chunks = data.log_segment.chunks()
        if isinstance(chunks, AsyncGenerator):
            # What it reads from is closed when the copy has ended, not when somebody collects it.
            await stack.enter_async_context(aclosing(chunks))
        async for read in chunks:
            view = memoryview(read)
            for start in range(0, len(view), MAX_DATA_BYTES):
                piece = view[start : start + MAX_DATA_BYTES]
                yield _chunk(pb.SEGMENT_PART_SEGMENT, position, piece)
                position += len(piece)
    yield pb.CopyLogSegmentDataRequest(finish=pb.CopyFinish())


def small_parts(data: LogSegmentData) -> list[tuple[pb.SegmentPart.ValueType, bytes]]:
    """The parts before the log; optional ones only when they exist."""
    parts: list[tuple[pb.SegmentPart.ValueType, bytes | None]] = [
        (pb.SEGMENT_PART_OFFSET_INDEX, data.offset_index),
        (pb.SEGMENT_PART_TIME_INDEX, data.time_index),
        (pb.SEGMENT_PART_TRANSACTION_INDEX, data.transaction_index),
        (pb.SEGMENT_PART_PRODUCER_SNAPSHOT, data.producer_snapshot),
        (pb.SEGMENT_PART_LEADER_EPOCHS, data.leader_epochs),
    ]
    return [(part, content) for part, content in parts if content is not None]


async def checked_pieces(
    pieces: AsyncGenerator[Piece, None], segment_id: str, start_position: int | None
) -> AsyncGenerator[bytes | memoryview, None]:
    """The bytes of a stream, each piece checked. Closing this closes the stream.

    Args:
        pieces: messages of the stream.
        segment_id: for errors.
        start_position: where the first piece must begin; None: anywhere.

    Raises:
        CorruptSegmentError: a piece does not match its CRC, or does not follow the one before.
    """
    expected = start_position
    async with aclosing(pieces):
        async for piece in pieces:
            if expected is not None and piece.position != expected:
                raise _corrupt(segment_id, piece, f"expected a piece at {expected}")
            data = piece.data
            if crc32c(data) != piece.crc32c:
                raise _corrupt(segment_id, piece, "its CRC does not match")
            expected = piece.position + len(data)
            yield data


def _chunk(part: pb.SegmentPart.ValueType, position: int, data: bytes | memoryview) -> WireChunk:
    return WireChunk(part, position, data, crc32c(data))


def _corrupt(segment_id: str, piece: Piece, complaint: str) -> CorruptSegmentError:
    return CorruptSegmentError(
        f"segment {segment_id}: piece at {piece.position} was damaged on the way: {complaint}",
        metadata={"segmentId": segment_id, "position": str(piece.position)},
    )
