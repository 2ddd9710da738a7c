"""Field names and null values of the documents: what scripts rely on."""

from typing import Any

from aquifer.common.v1 import partition_pb2, segment_pb2
from aquifer.manager.v1 import remote_log_manager_service_pb2 as manager_pb2
from aquifer.metadata.v1 import cluster_metadata_service_pb2 as cluster_pb2
from aquifer.metadata.v1 import remote_log_metadata_service_pb2 as facts_pb2
from aquifer.storage.v1 import remote_storage_service_pb2 as storage_pb2
from aquifer_admin import documents
from aquifer_admin.commands.why import explanation

_PARTITION = partition_pb2.TopicIdPartition(topic_id="A" * 22, topic="orders", partition=3)
_SEGMENT = segment_pb2.RemoteLogSegmentMetadata(
    segment_id=segment_pb2.RemoteLogSegmentId(topic_id_partition=_PARTITION, id="B" * 22),
    start_offset=10,
    end_offset=19,
    broker_id=1,
    max_timestamp_ms=-1,
    event_timestamp_ms=1000,
    segment_size_bytes=4096,
    state=segment_pb2.REMOTE_LOG_SEGMENT_STATE_COPY_SEGMENT_FINISHED,
    segment_leader_epochs={5: 15, 2: 10},
)


def test_a_segment_has_its_epochs_in_order_and_null_for_an_unknown_timestamp() -> None:
    assert documents.segment(_SEGMENT) == {
        "segment_id": "B" * 22,
        "topic": "orders",
        "topic_id": "A" * 22,
        "partition": 3,
        "state": "COPY_SEGMENT_FINISHED",
        "start_offset": 10,
        "end_offset": 19,
        "size_bytes": 4096,
        "max_timestamp_ms": None,
        "event_timestamp_ms": 1000,
        "broker_id": 1,
        "leader_epochs": [{"epoch": 2, "start_offset": 10}, {"epoch": 5, "start_offset": 15}],
        "txn_index_empty": False,
    }


def test_a_state_of_a_newer_contract_is_shown_as_its_number() -> None:
    assert documents.segment_state(77) == "77"
    assert documents.task_name(99) == "99"


def test_an_explanation_of_a_newer_manager_is_shown_with_the_number_of_its_reason() -> None:
    newer: Any = 999
    answer = manager_pb2.Explanation(question=newer, reason=newer, text="because", start_offset=7)
    row = explanation(2, answer)
    assert (row["question"], row["reason"], row["text"]) == ("999", "999", "because")


def test_only_finished_segments_count_as_remote() -> None:
    started = segment_pb2.RemoteLogSegmentMetadata()
    started.CopyFrom(_SEGMENT)
    started.state = segment_pb2.REMOTE_LOG_SEGMENT_STATE_COPY_SEGMENT_STARTED
    assert documents.remote_totals([_SEGMENT, started, _SEGMENT]) == (2, 8192)
    assert documents.remote_totals([]) == (0, 0)


def test_a_partition_has_the_five_offsets_the_lag_and_the_first_failure() -> None:
    state = manager_pb2.PartitionState(
        topic_id_partition=_PARTITION,
        leader_broker_id=2,
        leader_epoch=7,
        leader=True,
        log_start_offset=1,
        local_log_start_offset=2,
        highest_remote_offset=-1,
        last_stable_offset=4,
        log_end_offset=5,
        copy_lag_bytes=6,
        copy_lag_segments=1,
        copy_lag_ms=8,
        tasks=[
            manager_pb2.TaskState(
                type=manager_pb2.TASK_TYPE_COPY, next_run_in_ms=500, since_success_ms=-1
            ),
            manager_pb2.TaskState(
                type=manager_pb2.TASK_TYPE_EXPIRATION,
                next_run_in_ms=90,
                last_error_reason="OBJECT_STORE_UNAVAILABLE",
                last_error="503",
                consecutive_failures=2,
            ),
        ],
    )
    row = documents.partition_state(state, "127.0.0.1:7300")
    tasks = row.pop("tasks")
    assert row == {
        "topic": "orders",
        "topic_id": "A" * 22,
        "partition": 3,
        "manager": "127.0.0.1:7300",
        "leader": True,
        "leader_broker_id": 2,
        "leader_epoch": 7,
        "paused": False,
        "pauses": [],
        "log_start_offset": 1,
        "local_log_start_offset": 2,
        "highest_remote_offset": None,
        "last_stable_offset": 4,
        "log_end_offset": 5,
        "copy_lag_bytes": 6,
        "copy_lag_segments": 1,
        "copy_lag_ms": 8,
        "copied_segments": 0,
        "copied_bytes": 0,
        "deleted_segments": 0,
        "next_run_in_ms": 90,
        "last_error_reason": "OBJECT_STORE_UNAVAILABLE",
        "last_error": "503",
    }
    assert [task["task"] for task in tasks] == ["copy", "expiration"]
    assert tasks[0]["since_success_ms"] is None
    assert tasks[0]["last_error_reason"] is None


def test_a_partition_without_tasks_has_no_next_run() -> None:
    row = documents.partition_state(manager_pb2.PartitionState(), "m:1")
    assert row["next_run_in_ms"] is None
    assert row["tasks"] == []


def test_a_topic_counts_partitions_without_leader() -> None:
    topic = cluster_pb2.Topic(
        topic_id="A" * 22,
        name="orders",
        partitions=[
            cluster_pb2.Partition(partition=0, replicas=[1, 2], isr=[1], leader=1, leader_epoch=3),
            cluster_pb2.Partition(partition=1, replicas=[2], leader=-1),
        ],
        configs={"retention.ms": "5", "remote.storage.enable": "TRUE"},
    )
    assert documents.topic(topic) == {
        "topic": "orders",
        "topic_id": "A" * 22,
        "partition_count": 2,
        "replication_factor": 2,
        "leaderless_partitions": 1,
        "tiered": True,
        "configs": {"remote.storage.enable": "TRUE", "retention.ms": "5"},
        "remote_segments": None,
        "remote_bytes": None,
    }
    assert documents.topic_partition(topic.partitions[1])["leader"] is None


def test_optional_fields_of_findings_and_events_are_null() -> None:
    finding = documents.finding(storage_pb2.VerifyFinding(part="log", chunk=0, message="bad"))
    assert finding == {"part": "log", "chunk": 0, "position": None, "message": "bad"}
    event = documents.segment_event(facts_pb2.SegmentEvent(leader_epoch=0))
    assert event["from_state"] is None
    assert event["leader_epoch"] == 0
    assert event["trace_id"] is None


def test_a_segment_that_is_not_encrypted_has_no_key_id() -> None:
    stored = segment_pb2.StoredSegment(object_keys=["b", "a"], sha256={"log": "x"})
    assert documents.stored_segment(stored)["key_id"] is None
    assert documents.stored_segment(stored)["object_keys"] == ["b", "a"]
