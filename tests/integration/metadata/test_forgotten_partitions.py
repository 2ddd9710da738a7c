"""From the moment at which the deletion of a partition has finished its segments are gone, also while their rows are being removed."""

import builders
import pytest
from aquifer_core.clock import SystemClock
from aquifer_core.errors import InvalidStateTransitionError
from aquifer_core.ids import TopicIdPartition
from aquifer_metadata.adapters.postgres.change_signal import ChangeSignal
from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.remote_log_metadata_manager import (
    PostgresRemoteLogMetadataManager,
)
from aquifer_metadata.adapters.postgres.remote_log_rows import partition_key
from contract.remote_log_metadata.steps import (
    DELETED,
    DELETING,
    DELETION_STARTED,
    FINISHED,
    MARKED,
    STARTED,
    brought_to,
    move,
    move_deletion,
)
from sqlalchemy import text

DIED_BEFORE_FORGETTING = text("""
UPDATE remote_log_partition SET delete_state = 2, version = version + 1
WHERE topic_id = :topic_id AND partition = :partition
""")
LAST_VERSION = text("""
SELECT max(version) FROM remote_log_segment_event WHERE topic_id = :topic_id AND partition = :partition
""")


async def last_version(database: Database, partition: TopicIdPartition) -> int:
    values = partition_key(partition).values
    found = await database.read(lambda connection: connection.scalar(LAST_VERSION, values))
    return int(found or 0)


async def test_late_updates_are_answered_as_when_the_rows_are_gone(
    metadata_database: Database,
) -> None:
    """T20: a copy is not finished into a partition that is no more, nor does its history go on behind its end."""
    rlmm = PostgresRemoteLogMetadataManager(
        metadata_database, ChangeSignal(metadata_database), clock=SystemClock(), trace_id=lambda: ""
    )
    partition = builders.topic_id_partition()
    copying, copied, deleting = [
        await brought_to(rlmm, builders.remote_segment(partition, at, at + 9), state)
        for at, state in ((0, STARTED), (10, FINISHED), (20, DELETING))
    ]
    late = [(copying, FINISHED), (copying, DELETING), (copied, DELETING), (deleting, DELETING)]
    await move_deletion(rlmm, partition, MARKED, DELETION_STARTED)
    values = partition_key(partition).values
    await metadata_database.write(
        lambda connection: connection.execute(DIED_BEFORE_FORGETTING, values)
    )
    version = await last_version(metadata_database, partition)
    for left_over in (True, False):
        for segment, state in late:
            with pytest.raises(InvalidStateTransitionError) as refused:
                await move(rlmm, segment, state)
            assert refused.value.metadata["from"] == DELETED.name
        await move(rlmm, deleting, DELETED)
        assert await last_version(metadata_database, partition) == version
        if left_over:
            assert await rlmm.forgetting.forget_left_over() == 1
    for segment in (copying, copied, deleting):
        history = await rlmm.segment_history(segment.segment_id)
        assert (history[-1].to_state, history[-1].reason) == (DELETED, "partition deleted")
