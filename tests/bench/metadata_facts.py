"""A PostgreSQL server whose databases of many segments are loaded once and kept in a cache folder."""

import random
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_metadata.adapters.postgres.database import DatabaseOptions
from aquifer_metadata.adapters.postgres.schema import head_revision, migrate
from psycopg import sql

CACHE = Path("build/bench-cache/metadata")
OFFSETS_PER_SEGMENT = 1_000
SEGMENT_BYTES = 1 << 30
_TOPIC = "orders"

_COPIES: dict[str, tuple[tuple[str, ...], str]] = {
    "remote_log_segment": (
        (
            *("segment_id", "topic_id", "partition", "start_offset", "end_offset", "broker_id"),
            *("max_timestamp_ms", "event_timestamp_ms", "segment_size_bytes", "state"),
            *("leader_epochs", "leader_epoch_offsets", "custom_metadata", "txn_index_empty"),
            *("writer_leader_epoch", "version", "created_at_ms", "updated_at_ms"),
        ),
        "{id}\t{topic_id}\t{partition}\t{start}\t{end}\t1\t{at_ms}\t{at_ms}\t{size}\t1\t{{0}}\t{{{start}}}\t\\\\x01"
        "\tt\t0\t{version}\t{at_ms}\t{at_ms}\n",
    ),
    "remote_log_segment_epoch": (
        (
            *("topic_id", "partition", "leader_epoch", "segment_id", "start_offset", "end_offset"),
            *("txn_index_empty", "referenced", "finished_version"),
        ),
        "{topic_id}\t{partition}\t0\t{id}\t{start}\t{end}\tt\tt\t{version}\n",
    ),
    "remote_log_segment_event": (
        (
            *("topic_id", "partition", "version", "timestamp_ms", "segment_id", "from_state"),
            *("to_state", "broker_id", "event_timestamp_ms", "leader_epoch", "reason", "trace_id"),
        ),
        "{topic_id}\t{partition}\t{added}\t{at_ms}\t{id}\t\\N\t0\t1\t{at_ms}\t0\tcopy started\t\n"
        "{topic_id}\t{partition}\t{version}\t{at_ms}\t{id}\t0\t1\t1\t{at_ms}\t0\t\t\n",
    ),
}
"""Table -> (columns, line of COPY) of one finished segment and its history."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A database of finished segments, spread evenly over the partitions of one topic."""

    dsn: str
    topic_id: KafkaUuid
    segments: int
    partitions: int

    def partition(self, number: int) -> TopicIdPartition:
        """One of the partitions."""
        return TopicIdPartition(self.topic_id, _TOPIC, number)

    @property
    def per_partition(self) -> int:
        """Segments of one partition."""
        return self.segments // self.partitions

    def questions(self, count: int, seed: int) -> Iterator[tuple[TopicIdPartition, int]]:
        """Partitions and offsets that a segment holds, picked at random."""
        source = random.Random(seed)
        end = self.per_partition * OFFSETS_PER_SEGMENT
        for _ in range(count):
            number = source.randrange(self.partitions)
            yield self.partition(number), source.randrange(end)


async def kept_facts(server_dsn: str, segments: int, partitions: int) -> Facts:
    """The database of so many segments: loaded with COPY when the cache has none that fits the schema."""
    name = f"facts_{head_revision()}_{segments}_{partitions}"
    dsn = urlsplit(server_dsn)._replace(path=f"/{name}").geturl()
    topic_id = KafkaUuid(uuid.uuid5(uuid.NAMESPACE_DNS, name).bytes)
    facts = Facts(dsn, topic_id, segments, partitions)
    with closing(psycopg.connect(server_dsn, autocommit=True)) as connection:
        if not _exists(connection, name):
            loading = f"{name}_loading"
            _load(await empty_database(server_dsn, loading), facts)
            rename = sql.SQL("ALTER DATABASE {} RENAME TO {}")
            connection.execute(rename.format(sql.Identifier(loading), sql.Identifier(name)))
    return facts


async def empty_database(server_dsn: str, name: str) -> str:
    """Connection string of a database with the schema and nothing else; what was in it is dropped."""
    dsn = urlsplit(server_dsn)._replace(path=f"/{name}").geturl()
    with closing(psycopg.connect(server_dsn, autocommit=True)) as connection:
        _recreate(connection, name)
    await migrate(DatabaseOptions(dsn=dsn))
    return dsn


def bytes_of_facts(facts: Facts) -> int:
    """Bytes of the three tables of segments, with their indexes and history."""
    with closing(psycopg.connect(facts.dsn, autocommit=True)) as connection:
        row = connection.execute(
            "SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest(%s::text[]) name",
            [list(_COPIES)],
        ).fetchone()
    assert row is not None
    return int(row[0])


def _exists(connection: psycopg.Connection[Any], name: str) -> bool:
    found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
    return found.fetchone() is not None


def _recreate(connection: psycopg.Connection[Any], name: str) -> None:
    """An empty database; what an interrupted load left is dropped."""
    for statement in ("DROP DATABASE IF EXISTS {}", "CREATE DATABASE {}"):
        connection.execute(sql.SQL(statement).format(sql.Identifier(name)))


def _load(dsn: str, facts: Facts) -> None:
    with closing(psycopg.connect(dsn)) as connection:
        indexes = _without_indexes(connection)
        for table, (columns, line) in _COPIES.items():
            names = sql.SQL(", ").join(map(sql.Identifier, columns))
            statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), names)
            with connection.cursor() as cursor, cursor.copy(statement) as copy:
                for part in _lines(facts, line):
                    copy.write(part)
        for definition in indexes:
            connection.execute(definition)
        _partition_rows(connection, facts)
        connection.commit()
        connection.autocommit = True
        connection.execute("VACUUM ANALYZE")


def _lines(facts: Facts, line: str) -> Iterator[str]:
    """The rows of a table, a partition at a time."""
    now_ms = int(time.time() * 1000)
    topic_id = uuid.UUID(bytes=facts.topic_id.raw)
    for partition in range(facts.partitions):
        source = random.Random(partition)
        yield "".join(
            line.format(
                id=uuid.UUID(int=source.getrandbits(128), version=4),
                topic_id=topic_id,
                partition=partition,
                start=number * OFFSETS_PER_SEGMENT,
                end=(number + 1) * OFFSETS_PER_SEGMENT - 1,
                at_ms=now_ms,
                size=SEGMENT_BYTES,
                added=2 * number + 1,
                version=2 * number + 2,
            )
            for number in range(facts.per_partition)
        )


def _without_indexes(connection: psycopg.Connection[Any]) -> Sequence[str]:
    """Drops what indexes can be made again faster than kept up; returns the statements that make them."""
    found = connection.execute(
        "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = ANY(%s) AND indexname NOT LIKE '%%_pkey'",
        [list(_COPIES)],
    ).fetchall()
    for name, _ in found:
        connection.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(name)))
    return [definition for _, definition in found]


def _partition_rows(connection: psycopg.Connection[Any], facts: Facts) -> None:
    values = {
        "topic_id": uuid.UUID(bytes=facts.topic_id.raw),
        "partitions": facts.partitions,
        "version": 2 * facts.per_partition,
        "highest": facts.per_partition * OFFSETS_PER_SEGMENT - 1,
    }
    connection.execute(
        f"""INSERT INTO remote_log_partition (topic_id, partition, topic, highest_leader_epoch, version)
        SELECT %(topic_id)s, n, '{_TOPIC}', 0, %(version)s FROM generate_series(0, %(partitions)s - 1) n""",
        values,
    )
    connection.execute(
        """INSERT INTO remote_log_epoch (topic_id, partition, leader_epoch, highest_offset)
        SELECT %(topic_id)s, n, 0, %(highest)s FROM generate_series(0, %(partitions)s - 1) n""",
        values,
    )
