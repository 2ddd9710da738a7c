"""However many topics or partitions a question names or concerns, it is answered: PostgreSQL takes 65,535 parameters of a statement."""

from contextlib import aclosing

import pytest
from aquifer_core.clock import SystemClock
from aquifer_core.errors import RemoteResourceNotFoundError
from aquifer_metadata.adapters.postgres import cluster_log
from aquifer_metadata.adapters.postgres.change_signal import ChangeSignal
from aquifer_metadata.adapters.postgres.cluster_groups import SqlGroupStore
from aquifer_metadata.adapters.postgres.cluster_partitions import SqlPartitionStore
from aquifer_metadata.adapters.postgres.cluster_watch import SqlClusterWatch
from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.domain.cluster import ClusterDelta, GroupOffset, TopicPartition
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

MANY = 66_000
NAMED = [TopicPartition(topic="orders", partition=number) for number in range(MANY // 2)]
KNOWN = GroupOffset(topic="orders", partition=MANY // 2 - 1, offset=7)
CHANGE_OF_MANY = """
WITH moved AS (UPDATE cluster SET version = version + 1 RETURNING version),
made AS (
  INSERT INTO topic (topic_id, name, collision_name, configs)
  SELECT md5(n::text)::uuid, n::text, n::text, '{}' FROM generate_series(1, :many) n RETURNING topic_id)
INSERT INTO cluster_change (version, broker_ids, topic_ids, deleted_topic_ids, broker_configs)
SELECT version, '{}', (SELECT array_agg(topic_id) FROM made), '{}', '{}' FROM moved
"""


async def test_offsets_of_many_partitions_are_read_and_deleted(metadata_database: Database) -> None:
    """A group that follows a whole cluster, as one that mirrors it does."""
    groups = SqlGroupStore(metadata_database)
    await groups.commit("mirror", [KNOWN])
    assert list(await groups.fetch("mirror", NAMED)) == [KNOWN]
    await groups.delete("mirror", NAMED)
    assert list(await groups.fetch("mirror", [])) == []


async def test_a_change_of_many_topics_reaches_the_watches(metadata_database: Database) -> None:
    """A broker that has registered again leads everything of it under another leader epoch."""
    await cluster_log.initialize_cluster(metadata_database)

    async def change(connection: AsyncConnection) -> int:
        version = await cluster_log.current_version(connection)
        await connection.execute(text(CHANGE_OF_MANY), {"many": MANY})
        return version

    version = await metadata_database.write(change)
    watch = SqlClusterWatch(metadata_database, ChangeSignal(metadata_database), SystemClock())
    async with aclosing(watch.changes(version)) as changes:  # type: ignore[type-var]
        delta = await anext(changes)
    assert isinstance(delta.content, ClusterDelta)
    assert len(delta.content.topics) == MANY


async def test_an_election_that_names_many_partitions_is_judged(
    metadata_database: Database,
) -> None:
    await cluster_log.initialize_cluster(metadata_database)
    partitions = SqlPartitionStore(metadata_database, ChangeSignal(metadata_database))
    with pytest.raises(RemoteResourceNotFoundError):
        await partitions.elect_leaders(NAMED, unclean=False)
