"""What can be set about the domain."""

from dataclasses import dataclass
from typing import Final

from aquifer_core.errors import InvalidConfigurationError

MIB: Final = 1 << 20
MAX_SEGMENT_BYTES: Final = (1 << 31) - 1
"""Positions inside a segment are 32-bit numbers in Kafka's indexes."""
_MAX_CHUNK_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageOptions:
    """Sizes and limits.

    Attributes:
        chunk_size_bytes: a chunk ends at the first batch border at or after it.
        part_size_bytes: size of the parts of a multipart upload.
        single_put_max_bytes: logs up to this go up with one request.
        parallel_parts: parts of one copy in upload at once.
        upload_budget_bytes: memory of all parts of all copies together.
        chunk_cache_bytes: memory of all chunks, cached or being read.
        read_ahead_bytes: how far a sequential reader is read ahead; 0 turns that off.
        read_size_bytes: a request to the store reads whole chunks up to the first that reaches it.
        table_cache_chunks: chunk tables kept in memory, counted in chunks.
        manifest_cache_entries: manifests kept in memory.
        cleanup_timeout_s: how long a failed copy tries to delete what it wrote.
        read_timeout_s: how long one request for chunks may take, retries included.
    """

    chunk_size_bytes: int = 4 * MIB
    part_size_bytes: int = 32 * MIB
    single_put_max_bytes: int = 64 * MIB
    parallel_parts: int = 4
    upload_budget_bytes: int = 256 * MIB
    chunk_cache_bytes: int = 256 * MIB
    read_ahead_bytes: int = 32 * MIB
    read_size_bytes: int = 16 * MIB
    table_cache_chunks: int = 100_000
    manifest_cache_entries: int = 10_000
    cleanup_timeout_s: float = 30.0
    read_timeout_s: float = 60.0

    def __post_init__(self) -> None:
        if not 0 < self.chunk_size_bytes <= _MAX_CHUNK_BYTES:
            raise _refused("chunk size", self.chunk_size_bytes, f"between 1 and {_MAX_CHUNK_BYTES}")
        if self.parallel_parts < 1:
            raise _refused("number of parallel parts", self.parallel_parts, "at least 1")
        if not 0 < self.part_size_bytes <= self.upload_budget_bytes:
            raise _refused(
                "part size", self.part_size_bytes, "positive and at most the upload budget"
            )
        if not 0 <= self.single_put_max_bytes <= self.upload_budget_bytes:
            raise _refused(
                "limit of single uploads", self.single_put_max_bytes, "at most the upload budget"
            )
        if self.read_size_bytes < 1 or self.chunk_cache_bytes < 1 or self.read_ahead_bytes < 0:
            raise _refused("read size or cache size", self.read_size_bytes, "positive")


def _refused(what: str, value: int, expected: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(f"the {what} is {value}; it must be {expected}")
