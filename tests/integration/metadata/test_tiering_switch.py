"""Tiering of a topic is turned off with its remote data and on again, under the same topic id (K-3.12, K-7.1)."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import builders
import pytest
from aquifer.metadata.v1 import cluster_metadata_service_pb2 as pb
from aquifer_client import GrpcRemoteLogMetadataManager
from aquifer_core.clock import SystemClock
from aquifer_core.errors import InvalidStateTransitionError, PreconditionError
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.remote_log_forgetting import RemoteLogForgetting
from aquifer_rpc.calls import call_unary
from aquifer_rpc.server import GrpcServer
from contract.remote_log_metadata.steps import (
    DELETED,
    DELETING,
    DELETION_STARTED,
    FINISHED,
    FORGOTTEN,
    MARKED,
    brought_to,
    changes,
    deletions,
    found,
    listed,
    move,
    move_deletion,
    update,
)
from fixtures.cluster_calls import Stub, create, register
from sqlalchemy import text

TIERED = {"remote.storage.enable": "true"}


@pytest.fixture
async def rlmm(metadata_server: GrpcServer) -> AsyncIterator[GrpcRemoteLogMetadataManager]:
    manager = GrpcRemoteLogMetadataManager()
    await manager.configure({"endpoints": f"127.0.0.1:{metadata_server.port}"})
    yield manager
    await manager.close()


async def alter(
    stub: Stub, *, validate_only: bool = False, **configs: str
) -> pb.AlterConfigsResponse:
    request = pb.AlterConfigsRequest(
        resource_type=pb.CONFIG_RESOURCE_TYPE_TOPIC,
        resource_name="orders",
        changes=[
            pb.ConfigChange(
                key=key.replace("_", "."), value=value, operation=pb.CONFIG_OPERATION_SET
            )
            for key, value in configs.items()
        ],
        validate_only=validate_only,
    )
    return await call_unary(stub.AlterConfigs, request)


async def disable(stub: Stub, *, validate_only: bool = False) -> None:
    settings = {"remote_storage_enable": "false", "remote_log_delete_on_disable": "true"}
    await alter(stub, validate_only=validate_only, **settings)


async def enable(stub: Stub, *, validate_only: bool = False) -> None:
    await alter(stub, validate_only=validate_only, remote_storage_enable="true")


async def refused(stub: Stub) -> PreconditionError:
    with pytest.raises(PreconditionError) as error:
        await enable(stub)
    assert error.value.reason == "INVALID_PARTITION_TRANSITION"
    return error.value


async def tiered_topic(stub: Stub, partitions: int = 1) -> list[TopicIdPartition]:
    await register(stub, 1)
    made = await create(stub, "orders", num_partitions=partitions, configs=TIERED)
    topic_id = KafkaUuid.parse(made.topic_id)
    return [TopicIdPartition(topic_id, "orders", number) for number in range(partitions)]


async def deleted(rlmm: GrpcRemoteLogMetadataManager, tips: Sequence[TopicIdPartition]) -> None:
    """What a manager does for partitions that are marked."""
    for tip in tips:
        await move_deletion(rlmm, tip, DELETION_STARTED)
        for segment in await listed(rlmm, tip):
            await move(rlmm, segment, DELETING, DELETED)
        await move_deletion(rlmm, tip, FORGOTTEN)


async def test_tiering_is_enabled_again_when_the_deletion_has_finished(
    cluster_stub: Stub, rlmm: GrpcRemoteLogMetadataManager
) -> None:
    tips = await tiered_topic(cluster_stub, 2)
    old = builders.remote_segment(tips[0], 0, 99, {3: 0})
    await brought_to(rlmm, old)
    await rlmm.update_earliest_log_offset(tips[0], 10, 3)
    await disable(cluster_stub)
    assert [each.topic_id_partition for each in await deletions(rlmm)] == tips
    assert {each.state for each in await deletions(rlmm)} == {MARKED}
    assert (await refused(cluster_stub)).metadata["from"] == MARKED.name
    await deleted(rlmm, tips[:1])
    await move_deletion(rlmm, tips[1], DELETION_STARTED)
    error = await refused(cluster_stub)
    assert (error.metadata["from"], error.metadata["partition"]) == (DELETION_STARTED.name, "1")
    assert "wait" in error.message
    with pytest.raises(PreconditionError):
        await rlmm.add_remote_log_segment_metadata(builders.remote_segment(tips[0], 100, 199))
    await deleted(rlmm, tips[1:])

    await enable(cluster_stub)
    assert await deletions(rlmm) == []
    assert await listed(rlmm, tips[0]) == []
    assert await rlmm.highest_offset_for_epoch(tips[0], 3) is None
    assert await rlmm.earliest_log_offset(tips[0]) is None
    new = await brought_to(rlmm, builders.remote_segment(tips[0], 50, 199, {3: 50}))
    assert await found(rlmm, tips[0], 3, 60) == new.segment_id
    assert await found(rlmm, tips[0], 3, 10) is None
    assert await listed(rlmm, tips[0]) == [new]
    assert await rlmm.highest_offset_for_epoch(tips[0], 3) == 199
    with pytest.raises(InvalidStateTransitionError):
        await rlmm.add_remote_log_segment_metadata(old)
    assert [each.to_state for each in await rlmm.segment_history(old.segment_id)][-1] is DELETED

    await disable(cluster_stub)
    assert [each.state for each in await deletions(rlmm)] == [MARKED, MARKED]
    await deleted(rlmm, tips)
    await enable(cluster_stub)
    await brought_to(rlmm, builders.remote_segment(tips[1], 0, 9))


async def test_late_calls_of_the_old_deletion_are_answered_as_before_and_do_nothing(
    cluster_stub: Stub, rlmm: GrpcRemoteLogMetadataManager
) -> None:
    [tip] = await tiered_topic(cluster_stub)
    await brought_to(rlmm, builders.remote_segment(tip, 0, 99))
    await disable(cluster_stub)
    await deleted(rlmm, [tip])
    kept = None
    for enabled_again in (False, True):
        if enabled_again:
            await enable(cluster_stub)
            kept = await brought_to(rlmm, builders.remote_segment(tip, 50, 149))
        for state in (MARKED, DELETION_STARTED):
            with pytest.raises(InvalidStateTransitionError) as error:
                await move_deletion(rlmm, tip, state)
            assert error.value.metadata["from"] == FORGOTTEN.name
        await move_deletion(rlmm, tip, FORGOTTEN)
    assert kept is not None
    late = update(kept, DELETING, reason="PARTITION_DELETED")
    with pytest.raises(PreconditionError, match="not being deleted any more"):
        await rlmm.update_remote_log_segment_metadata(late)
    assert await listed(rlmm, tip) == [kept]
    assert await deletions(rlmm) == []
    assert await rlmm.highest_offset_for_epoch(tip, 0) == 149
    await move(rlmm, kept, DELETING, DELETED)


async def test_a_deletion_that_is_still_being_forgotten_is_waited_for(
    cluster_stub: Stub, rlmm: GrpcRemoteLogMetadataManager, metadata_database: Database
) -> None:
    """A process that ended in the middle, and one that goes on long after, when there is something new."""
    [tip] = await tiered_topic(cluster_stub)
    await brought_to(rlmm, builders.remote_segment(tip, 0, 99))
    await disable(cluster_stub)
    await move_deletion(rlmm, tip, DELETION_STARTED)
    await metadata_database.write(
        lambda connection: connection.execute(
            text("UPDATE remote_log_partition SET delete_state = 2")
        )
    )
    assert (await refused(cluster_stub)).metadata["from"] == FORGOTTEN.name
    late = RemoteLogForgetting(metadata_database, SystemClock(), batch_size=1)
    await late.forget(tip)
    await enable(cluster_stub)
    kept = await brought_to(rlmm, builders.remote_segment(tip, 50, 149))
    await late.forget(tip)
    assert await listed(rlmm, tip) == [kept]
    assert await rlmm.highest_offset_for_epoch(tip, 0) == 149


async def test_a_watch_sees_the_end_of_the_old_segments_and_the_new_ones(
    cluster_stub: Stub, rlmm: GrpcRemoteLogMetadataManager
) -> None:
    [tip] = await tiered_topic(cluster_stub)
    await brought_to(rlmm, builders.remote_segment(tip, 0, 99))
    [before] = await changes(rlmm, tip, 0, 1)
    await disable(cluster_stub)
    await deleted(rlmm, [tip])
    await enable(cluster_stub)
    new = builders.remote_segment(tip, 50, 149)
    await rlmm.add_remote_log_segment_metadata(new)
    seen = await changes(rlmm, tip, before.version, 7)
    assert [change.delete_state for change in seen] == [
        *(MARKED, DELETION_STARTED, None, None),
        *(FORGOTTEN, None, None),
    ]
    assert seen[-2].segment is None
    assert seen[-1].segment == new
    async with aclosing(rlmm.watch_partition(tip)) as watch:  # type: ignore[type-var]
        assert (await anext(watch)).segment == new


async def test_a_check_alone_neither_marks_nor_reopens(
    cluster_stub: Stub, rlmm: GrpcRemoteLogMetadataManager
) -> None:
    [tip] = await tiered_topic(cluster_stub)
    await disable(cluster_stub, validate_only=True)
    assert await deletions(rlmm) == []
    await disable(cluster_stub)
    with pytest.raises(PreconditionError):
        await enable(cluster_stub, validate_only=True)
    await deleted(rlmm, [tip])
    await enable(cluster_stub, validate_only=True)
    with pytest.raises(PreconditionError):
        await rlmm.add_remote_log_segment_metadata(builders.remote_segment(tip, 0, 9))


async def test_a_topic_that_was_never_tiered_is_enabled_at_once(
    cluster_stub: Stub, rlmm: GrpcRemoteLogMetadataManager
) -> None:
    """EnableRemoteLogOnTopicTest, K-7.1."""
    await register(cluster_stub, 1)
    made = await create(cluster_stub, "orders")
    await enable(cluster_stub)
    await enable(cluster_stub)
    tip = TopicIdPartition(KafkaUuid.parse(made.topic_id), "orders", 0)
    segment = await brought_to(rlmm, builders.remote_segment(tip, 0, 9), FINISHED)
    assert await listed(rlmm, tip) == [segment]
