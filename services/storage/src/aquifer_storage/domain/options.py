"""What can be set about the domain."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from aquifer_core.errors import InvalidConfigurationError

from aquifer_storage.domain.zstd_codec import CODECS, DEFAULT_LEVEL, MAX_LEVEL, NO_CODEC

MIB: Final = 1 << 20
MAX_SEGMENT_BYTES: Final = (1 << 31) - 1
"""Positions inside a segment are 32-bit numbers in Kafka's indexes."""
_MAX_CHUNK_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOptions:
    """What differs for some topics; none: as for all.

    Attributes:
        codec: compression of chunks, `none` or `zstd`.
        zstd_level: of the compression; higher is smaller and slower.
        chunk_size_bytes: a chunk ends at the first batch border at or after it.
    """

    codec: str | None = None
    zstd_level: int | None = None
    chunk_size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkOptions:
    """How the chunks of a topic are made; see `TopicOptions`."""

    codec: str
    zstd_level: int
    chunk_size_bytes: int

    def __post_init__(self) -> None:
        if not 0 < self.chunk_size_bytes <= _MAX_CHUNK_BYTES:
            raise _refused("chunk size", self.chunk_size_bytes, f"between 1 and {_MAX_CHUNK_BYTES}")
        if self.codec not in CODECS:
            raise _refused("codec", self.codec, f"one of {', '.join(CODECS)}")
        if not 1 <= self.zstd_level <= MAX_LEVEL:
            raise _refused("zstd level", self.zstd_level, f"between 1 and {MAX_LEVEL}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageOptions:
    """Sizes and limits.

    Attributes:
        chunk_size_bytes: a chunk ends at the first batch border at or after it.
        codec: compression of chunks, `none` or `zstd`.
        zstd_level: of the compression.
        topics: what differs for topics, by patterns of their names; the first that matches counts.
        cpu_threads: threads that digest, compress and seal; none: one per processor.
        part_size_bytes: size of the parts of a multipart upload.
        single_put_max_bytes: logs up to this go up with one request.
        parallel_parts: parts of one copy in upload at once.
        upload_budget_bytes: memory of all copies together: parts in upload, chunks at work, and indexes.
        chunk_cache_bytes: memory of all chunks, cached or being read.
        read_ahead_bytes: how far a sequential reader is read ahead; 0 turns that off.
        read_size_bytes: a request to the store reads whole chunks up to the first that reaches it.
        table_cache_chunks: chunk tables kept in memory, counted in chunks.
        manifest_bundle_max_bytes: index bundles up to this lie in the manifest, larger ones in an object of their own.
        manifest_cache_bytes: memory of the manifests kept, with the bundles in them.
        data_key_cache_entries: data keys kept in memory.
        copy_timeout_s: longest time of a copy; what is to be swept is at least twice as old.
        cleanup_timeout_s: how long a failed copy tries to delete what it wrote.
        read_timeout_s: how long one request for chunks may take, retries included.
    """

    chunk_size_bytes: int = 4 * MIB
    codec: str = NO_CODEC
    zstd_level: int = DEFAULT_LEVEL
    topics: Mapping[str, TopicOptions] = field(default_factory=dict)
    cpu_threads: int | None = None
    part_size_bytes: int = 32 * MIB
    single_put_max_bytes: int = 64 * MIB
    parallel_parts: int = 2
    upload_budget_bytes: int = 160 * MIB
    chunk_cache_bytes: int = 256 * MIB
    read_ahead_bytes: int = 32 * MIB
    read_size_bytes: int = 16 * MIB
    table_cache_chunks: int = 100_000
    manifest_bundle_max_bytes: int = 64 << 10
    manifest_cache_bytes: int = 64 * MIB
    data_key_cache_entries: int = 10_000
    copy_timeout_s: float = 6 * 3600.0
    cleanup_timeout_s: float = 30.0
    read_timeout_s: float = 60.0

    def __post_init__(self) -> None:
        for topic in (TopicOptions(), *self.topics.values()):
            self._merged(topic)
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

    @property
    def ahead_bytes(self) -> int:
        """How much of the upload budget is lent for chunks at work; enough is left for the largest buffer."""
        largest_bytes = max(self.part_size_bytes, self.single_put_max_bytes)
        return min(self.upload_budget_bytes // 8, self.upload_budget_bytes - largest_bytes)

    @property
    def held_bytes(self) -> int:
        """How much of the upload budget copies may keep beside their buffers; enough is left for the largest buffer."""
        largest_bytes = max(self.part_size_bytes, self.single_put_max_bytes)
        return self.upload_budget_bytes - largest_bytes - self.ahead_bytes

    def of_topic(self, topic: str) -> ChunkOptions:
        """Return how the chunks of a topic are made."""
        for pattern, options in self.topics.items():
            if fnmatchcase(topic, pattern):
                return self._merged(options)
        return self._merged(TopicOptions())

    def _merged(self, topic: TopicOptions) -> ChunkOptions:
        return ChunkOptions(
            codec=self.codec if topic.codec is None else topic.codec,
            zstd_level=self.zstd_level if topic.zstd_level is None else topic.zstd_level,
            chunk_size_bytes=topic.chunk_size_bytes or self.chunk_size_bytes,
        )


def _refused(what: str, value: int | str, expected: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(f"the {what} is {value}; it must be {expected}")
