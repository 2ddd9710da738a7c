"""Java's hashes and the metadata partitioners, against JDK vectors (SR-30, K-4.5)."""

import pytest
from aquifer_core.ids import KafkaUuid
from aquifer_core.java_hash import (
    floor_mod,
    java_long_hash,
    java_objects_hash,
    java_string_hash,
    kafka_metadata_partition,
    key_partition,
    metadata_partition,
    murmur2,
    to_positive,
)

# topic, partition, hashCode, floorMod 50, toPositive % 50, topic id, Objects.hash, murmur2, Kafka's
VECTORS = [
    ("topicA", 0, -957322731, 19, 17, "AAAAAAAAAAAAAAAAAAAAAQ", 30752, 1180230835, 35),
    ("orders", 0, 1234322248, 48, 48, "jF8s79t9SrG_PNqlwv7bAA", -1569520090, -1445713168, 30),
    ("orders", 7, 1234322255, 5, 5, "jF8s79t9SrG_PNqlwv7bAA", -1569520083, 118336532, 32),
    ("payments.eu", 12, 2032093789, 39, 39, "knnxbs3FSRyKdPcSAOQC-w", -1039799838, -1624417434, 14),
    ("test", 3, -877171272, 28, 26, "oAtiIQ95REujbuzNd_lkLQ", 1269558296, -237685500, 48),
    ("t", 0, 112919, 19, 19, "MvDxzVmcRsaTz33bUuRU6A", 623920935, 175581926, 26),
    ("clickstream", 49, -1136974998, 2, 0, "07R5amHmR32VDA6jHkGbTA", -2043293816, -1189547598, 0),
    ("inventory-events", 2, 293352911, 11, 11, "JEXY6aqzQY-32P5TStzaFg", 476655296, -1278750318, 30),
]  # fmt: skip


@pytest.mark.parametrize(
    ("topic", "partition", "hashed", "floored", "masked"), [vector[:5] for vector in VECTORS]
)
def test_metadata_partition_of_the_kip_is_never_negative(
    topic: str, partition: int, hashed: int, floored: int, masked: int
) -> None:
    """SR-30."""
    assert java_string_hash(f"{topic}-{partition}") == hashed
    assert metadata_partition(topic, partition, 50) == floor_mod(hashed, 50) == floored
    assert to_positive(hashed) % 50 == masked


@pytest.mark.parametrize(
    ("partition", "topic_id", "objects_hash", "murmur", "expected"),
    [(vector[1], *vector[5:]) for vector in VECTORS],
)
def test_metadata_partition_of_shipped_brokers_hashes_the_topic_id(
    partition: int, topic_id: str, objects_hash: int, murmur: int, expected: int
) -> None:
    """K-4.4."""
    uuid = KafkaUuid.parse(topic_id)
    most = int.from_bytes(uuid.raw[:8], "big")
    least = int.from_bytes(uuid.raw[8:], "big")
    hashed = java_objects_hash(java_long_hash(least), java_long_hash(most), partition)
    assert hashed == objects_hash
    assert murmur2(hashed.to_bytes(4, "big", signed=True)) == murmur
    assert kafka_metadata_partition(uuid, partition, 50) == expected


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("polygenelubricants", -2147483648),
        ("\N{GRINNING FACE}", 1772899),
        ("größe", 98762257),
    ],
)
def test_string_hash_runs_over_utf_16_code_units(text: str, hashed: int) -> None:
    assert java_string_hash(text) == hashed


def test_the_mask_and_the_floor_differ_from_the_absolute() -> None:
    lowest = java_string_hash("polygenelubricants")
    assert to_positive(lowest) == 0
    assert floor_mod(lowest, 50) == 2


@pytest.mark.parametrize(
    ("value", "hashed"), [(0, 0), (-1, 0), (1 << 32, 1), (-(2**63), -(2**31)), (2**64 - 1, 0)]
)
def test_long_hash_folds_both_halves(value: int, hashed: int) -> None:
    assert java_long_hash(value) == hashed


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed
    assert key_partition(key, 1000) == (hashed & 0x7FFFFFFF) % 1000
