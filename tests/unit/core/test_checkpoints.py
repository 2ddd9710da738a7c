"""Checkpoints, property files and file names of a log directory (K-6.1, K-6.4)."""

import pytest
from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats.leader_epoch_checkpoint import format_leader_epochs, parse_leader_epochs
from aquifer_core.formats.meta_properties import (
    MetaProperties,
    format_meta_properties,
    parse_meta_properties,
)
from aquifer_core.formats.offset_checkpoint import format_offsets, parse_offsets
from aquifer_core.formats.partition_metadata import (
    format_partition_metadata,
    parse_partition_metadata,
)
from aquifer_core.formats.segment_files import (
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    REMOTE_LOG_INDEX_SUFFIX,
    parse_base_offset,
    parse_partition_directory,
    partition_directory,
    segment_file_name,
)
from aquifer_core.ids import KafkaUuid
from aquifer_core.leader_epoch import LeaderEpochEntry

TOPIC_ID = KafkaUuid.parse("jF8s79t9SrG_PNqlwv7bAA")


def test_leader_epoch_checkpoint_is_kafkas_text() -> None:
    entries = (LeaderEpochEntry(0, 0), LeaderEpochEntry(3, 1 << 40))
    text = b"0\n2\n0 0\n3 1099511627776\n"
    assert format_leader_epochs(entries) == text
    assert parse_leader_epochs(memoryview(text)) == entries
    assert parse_leader_epochs(b"0\n0") == ()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"", "line 1 is missing"),
        (b"0\n", "line 2 is missing"),
        (b"1\n0\n", "line 1: version 1"),
        (b"x\n0\n", "line 1: 'x' is not a number"),
        (b"0\n2\n0 0\n", "line 2: 2 entries announced, 1 present"),
        (b"0\n-1\n", "line 2: -1 entries announced"),
        (b"0\n1\n0\n", "line 3: malformed entry '0'"),
        (b"0\n2\n0 0\n1 2 3\n", "line 4: malformed entry"),
        (b"0\n1\n2147483648 0\n", "line 3: '2147483648' is not a number of 32 bits"),
        (b"0\n1\n0 9223372036854775808\n", "line 3: .* is not a number of 64 bits"),
        (b"0\n1\n0 1_0\n", "line 3: '1_0' is not a number"),
        (b"0\n1\n0 -1\n", "line 3: negative"),
        (b"0\n1\n\xff 0\n", "not UTF-8 at byte 4"),
    ],
)
def test_malformed_leader_epochs_name_the_line(text: bytes, what: str) -> None:
    with pytest.raises(CorruptIndexError, match=f"leader epoch checkpoint: {what}"):
        parse_leader_epochs(text)


def test_offset_checkpoint_is_kafkas_text() -> None:
    offsets = {("orders", 0): 12, ("orders", 1): -1, ("a.b-c", 30): 1 << 50}
    text = b"0\n3\norders 0 12\norders 1 -1\na.b-c 30 1125899906842624\n"
    assert format_offsets(offsets) == text
    assert parse_offsets(text) == offsets


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"0\n1\norders 0\n", "line 3: malformed entry"),
        (b"0\n1\norders zero 0\n", "line 3: 'zero' is not a number"),
        (b"0\n2\norders 0 1\norders 0 2\n", "line 4: orders-0 appears twice"),
    ],
)
def test_malformed_offsets_name_the_line(text: bytes, what: str) -> None:
    with pytest.raises(CorruptIndexError, match=f"offset checkpoint: {what}"):
        parse_offsets(text)


def test_partition_metadata_is_kafkas_text() -> None:
    text = b"version: 0\ntopic_id: jF8s79t9SrG_PNqlwv7bAA"
    assert format_partition_metadata(TOPIC_ID) == text
    assert parse_partition_metadata(text + b"\n") == TOPIC_ID


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"topic_id: jF8s79t9SrG_PNqlwv7bAA", "version None"),
        (b"version: 1\ntopic_id: jF8s79t9SrG_PNqlwv7bAA", "version 1"),
        (b"version: 0\n", "not a uuid"),
        (b"version: 0\ntopic_id: short", "not a uuid"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "zero"),
        (b"version", "line 1: malformed property 'version'"),
    ],
)
def test_malformed_partition_metadata_says_what_is_wrong(text: bytes, what: str) -> None:
    with pytest.raises(CorruptIndexError, match=what):
        parse_partition_metadata(text)


def test_meta_properties_of_java_are_read() -> None:
    text = (
        b"#\n#Mon Jan 01 12:00:00 UTC 2024\ncluster.id=jF8s79\\=\\:x\n"
        b"directory.id=jF8s79t9SrG_PNqlwv7bAA\nnode.id=3\nversion=1\n"
    )
    meta = MetaProperties(cluster_id="jF8s79=:x", node_id=3, directory_id=TOPIC_ID)
    assert parse_meta_properties(text) == meta
    assert format_meta_properties(meta) == text[text.index(b"cluster") :]
    older = MetaProperties(cluster_id="c", node_id=0)
    assert parse_meta_properties(format_meta_properties(older)) == older


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"version=0\n", "version 0"),
        (b"version=1\nnode.id=1\n", "cluster.id missing"),
        (b"version=1\n", "cluster.id, node.id missing"),
        (b"version=1\ncluster.id=a\nnode.id=b\n", "node.id: 'b' is not a number"),
        (b"version=1\ncluster.id=a\nnode.id=1\ndirectory.id=x\n", "directory.id"),
        (b"version=1\n=5\n", "line 2: malformed"),
    ],
)
def test_malformed_meta_properties_say_what_is_wrong(text: bytes, what: str) -> None:
    with pytest.raises(CorruptIndexError, match=what):
        parse_meta_properties(text)


def test_file_names_are_padded_to_20_digits() -> None:
    assert segment_file_name(0, LOG_SUFFIX) == "00000000000000000000.log"
    assert segment_file_name(2**63 - 1, PRODUCER_SNAPSHOT_SUFFIX) == "09223372036854775807.snapshot"
    assert segment_file_name(42, REMOTE_LOG_INDEX_SUFFIX) == "00000000000000000042.remoteLogIndex"
    with pytest.raises(ValueError, match="negative"):
        segment_file_name(-1, LOG_SUFFIX)


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("00000000000000000042.log", 42),
        ("00000000000000000042.timeindex.deleted", 42),
        ("09223372036854775807.snapshot", 2**63 - 1),
        ("09223372036854775808.log", None),
        ("42.log", None),
        ("000000000000000000042.log", None),
        ("00000000000000000042", None),
        ("leader-epoch-checkpoint", None),
        ("partition.metadata", None),
    ],
)
def test_base_offset_is_read_from_file_names(name: str, offset: int | None) -> None:
    assert parse_base_offset(name) == offset


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", ("orders", 0)),
        ("a.b-c_d-2147483647", ("a.b-c_d", 2147483647)),
        ("orders-2147483648", None),
        ("orders", None),
        ("-3", None),
        ("orders-0.3f2a-delete", None),
        ("orders-0.3f2a-future", None),
        ("remote-log-index-cache", None),
    ],
)
def test_partition_directories_are_told_from_others(
    name: str, expected: tuple[str, int] | None
) -> None:
    assert parse_partition_directory(name) == expected
    if expected is not None:
        assert partition_directory(*expected) == name
