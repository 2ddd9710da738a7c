"""What a newer service says does not break an older client."""

from typing import Any

from aquifer.common.v1 import partition_pb2
from aquifer.manager.v1 import remote_log_manager_service_pb2 as pb
from aquifer_client import TaskType
from aquifer_client._manager_values import partition_state_from_pb
from aquifer_core.ids import KafkaUuid


def test_a_partition_with_a_task_that_only_a_newer_manager_has_is_listed() -> None:
    newer: Any = 999
    where = partition_pb2.TopicIdPartition(
        topic_id=str(KafkaUuid.random()), topic="orders", partition=3
    )
    tasks = [pb.TaskState(type=pb.TASK_TYPE_COPY), pb.TaskState(type=newer, last_error="why")]
    state = partition_state_from_pb(pb.PartitionState(topic_id_partition=where, tasks=tasks))
    assert [task.type for task in state.tasks] == [TaskType.COPY, TaskType.UNKNOWN]
    assert state.tasks[1].last_error == "why"
