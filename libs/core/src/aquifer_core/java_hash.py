"""Java's and Kafka's hashes, bit for bit, and the partitioners built on them (K-4.4, K-4.5)."""

import struct
from typing import Final

from aquifer_core.ids import KafkaUuid

__all__ = [
    "floor_mod",
    "java_long_hash",
    "java_objects_hash",
    "java_string_hash",
    "kafka_metadata_partition",
    "key_partition",
    "metadata_partition",
    "murmur2",
    "to_positive",
]

_MASK_32: Final = 0xFFFFFFFF
_MASK_64: Final = 0xFFFFFFFFFFFFFFFF
_MURMUR2_SEED: Final = 0x9747B28C
_MURMUR2_M: Final = 0x5BD1E995


def java_string_hash(text: str) -> int:
    """Return `String.hashCode()`, a signed 32-bit number, over the UTF-16 code units."""
    result = 0
    for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
        result = (31 * result + unit) & _MASK_32
    return _signed_32(result)


def java_long_hash(value: int) -> int:
    """Return `Long.hashCode()` of a signed or unsigned 64-bit number."""
    unsigned = value & _MASK_64
    return _signed_32(unsigned ^ (unsigned >> 32))


def java_objects_hash(*hashes: int) -> int:
    """Return `Objects.hash()` of objects with these hash codes."""
    result = 1
    for value in hashes:
        result = (31 * result + value) & _MASK_32
    return _signed_32(result)


def floor_mod(value: int, divisor: int) -> int:
    """Return `Math.floorMod`: never negative for a positive divisor, unlike Java's `%`."""
    return value % divisor


def to_positive(value: int) -> int:
    """Return `Utils.toPositive`: the number without its sign bit, which is not its absolute."""
    return value & 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """Return Kafka's `Utils.murmur2`, a signed 32-bit number."""
    result = _MURMUR2_SEED ^ len(data)
    whole = len(data) & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        mixed = (word * _MURMUR2_M) & _MASK_32
        mixed ^= mixed >> 24
        mixed = (mixed * _MURMUR2_M) & _MASK_32
        result = ((result * _MURMUR2_M) & _MASK_32) ^ mixed
    if whole < len(data):
        result ^= int.from_bytes(data[whole:], "little")
        result = (result * _MURMUR2_M) & _MASK_32
    result ^= result >> 13
    result = (result * _MURMUR2_M) & _MASK_32
    return _signed_32(result ^ (result >> 15))


def metadata_partition(topic: str, partition: int, partition_count: int) -> int:
    """Return the metadata partition of a user partition as the KIP defines it.

    `topic-partition` as Java's `String.hashCode`, then floorMod, because the KIP's plain `%` is
    negative for half of all names (SR-30).
    """
    return floor_mod(java_string_hash(f"{topic}-{partition}"), partition_count)


def kafka_metadata_partition(topic_id: KafkaUuid, partition: int, partition_count: int) -> int:
    """Return the partition of `__remote_log_metadata` that a shipped broker uses (K-4.4).

    Source: `RemoteLogMetadataTopicPartitioner`; the topic's name is not part of it.
    """
    most, least = struct.unpack(">qq", topic_id.raw)
    hashed = java_objects_hash(java_long_hash(least), java_long_hash(most), partition)
    return to_positive(murmur2(struct.pack(">i", hashed))) % partition_count


def key_partition(key: bytes, partition_count: int) -> int:
    """Return the partition that Java's default partitioner chooses for a record key."""
    return to_positive(murmur2(key)) % partition_count


def _signed_32(value: int) -> int:
    return (value & _MASK_32) - ((value & 0x80000000) << 1)
