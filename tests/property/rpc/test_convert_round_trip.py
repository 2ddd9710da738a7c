import pytest
from aquifer.common.v1 import partition_pb2, segment_pb2
from aquifer.metadata.v1 import remote_log_metadata_service_pb2 as metadata_pb
from aquifer_core.errors import InvalidRequestError
from aquifer_core.ids import KafkaUuid, RemoteLogSegmentId, TopicIdPartition
from aquifer_core.ports import (
    PartitionChange,
    RetentionCandidate,
    RetentionPlan,
    RetentionPolicy,
    RetentionReason,
    SegmentEvent,
)
from aquifer_core.segment import (
    CopyResult,
    IndexType,
    IsolationLevel,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    StoredSegment,
    VerifyFinding,
    VerifyProgress,
)
from aquifer_core.state import RemoteLogSegmentState, RemotePartitionDeleteState
from aquifer_rpc import convert
from hypothesis import given
from hypothesis import strategies as st

int32s = st.integers(min_value=-(2**31), max_value=2**31 - 1)
int64s = st.integers(min_value=-(2**63), max_value=2**63 - 1)
naturals = st.integers(min_value=0, max_value=2**31 - 1)
uuids = st.binary(min_size=16, max_size=16).map(KafkaUuid)
tips = st.builds(TopicIdPartition, uuids, st.text(min_size=1, max_size=30), naturals)
segment_ids = st.builds(RemoteLogSegmentId, tips, uuids)
customs = st.none() | st.binary(max_size=128)
segment_states = st.sampled_from(RemoteLogSegmentState)
delete_states = st.sampled_from(RemotePartitionDeleteState)


@st.composite
def segments(draw: st.DrawFn) -> RemoteLogSegmentMetadata:
    offsets = sorted(draw(st.lists(st.integers(0, 2**62), min_size=1, max_size=6, unique=True)))
    epochs = sorted(
        draw(st.lists(naturals, min_size=len(offsets), max_size=len(offsets), unique=True))
    )
    return RemoteLogSegmentMetadata(
        segment_id=draw(segment_ids),
        start_offset=offsets[0],
        end_offset=offsets[-1] + draw(naturals),
        broker_id=draw(int32s),
        max_timestamp_ms=draw(int64s),
        event_timestamp_ms=draw(int64s),
        segment_size_bytes=draw(naturals),
        segment_leader_epochs=dict(zip(epochs, offsets, strict=True)),
        state=draw(segment_states),
        custom_metadata=draw(customs),
        txn_index_empty=draw(st.booleans()),
    )


updates = st.builds(
    RemoteLogSegmentMetadataUpdate,
    segment_id=segment_ids,
    event_timestamp_ms=int64s,
    state=segment_states,
    broker_id=int32s,
    custom_metadata=customs,
    reason=st.text(max_size=20),
)
stored = st.builds(
    StoredSegment,
    metadata=segments(),
    object_keys=st.lists(st.text(max_size=20), max_size=4).map(tuple),
    stored_bytes=naturals,
    original_bytes=naturals,
    chunk_count=naturals,
    codec=st.sampled_from(["none", "zstd"]),
    key_id=st.none() | st.text(max_size=10),
    sha256=st.dictionaries(st.text(max_size=10), st.text(max_size=64), max_size=3),
    writer_version=st.text(max_size=10),
    custom_metadata=customs,
)
findings = st.builds(
    VerifyFinding,
    part=st.text(max_size=10),
    chunk=st.none() | naturals,
    position=st.none() | naturals,
    message=st.text(max_size=20),
)
progress = st.builds(
    VerifyProgress,
    verified_bytes=naturals,
    total_bytes=naturals,
    findings=st.lists(findings, max_size=3).map(tuple),
    done=st.booleans(),
)
policies = st.builds(
    RetentionPolicy,
    retention_ms=int64s,
    retention_bytes=int64s,
    log_start_offset=naturals,
    log_end_offset=naturals,
    local_only_bytes=naturals,
    in_progress=st.frozensets(uuids, max_size=4),
    copy_abandoned_after_ms=naturals,
)
plans = st.builds(
    RetentionPlan,
    candidates=st.lists(
        st.builds(RetentionCandidate, metadata=segments(), reason=st.sampled_from(RetentionReason)),
        max_size=3,
    ).map(tuple),
    new_log_start_offset=st.none() | naturals,
    remote_bytes=naturals,
)
changes = st.builds(
    PartitionChange,
    version=naturals,
    segment=st.none() | segments(),
    delete_state=st.none() | delete_states,
    earliest_log_offset=st.none() | naturals,
)


@given(tips)
def test_partitions_round_trip(value: TopicIdPartition) -> None:
    assert convert.tip_from_pb(convert.tip_to_pb(value)) == value


@given(segments())
def test_segment_metadata_round_trips(value: RemoteLogSegmentMetadata) -> None:
    wire = convert.segment_metadata_to_pb(value).SerializeToString()
    message = segment_pb2.RemoteLogSegmentMetadata.FromString(wire)

    assert convert.segment_metadata_from_pb(message) == value


@given(updates)
def test_segment_updates_round_trip(value: RemoteLogSegmentMetadataUpdate) -> None:
    assert convert.segment_update_from_pb(convert.segment_update_to_pb(value)) == value


@given(stored)
def test_manifests_round_trip(value: StoredSegment) -> None:
    assert convert.stored_segment_from_pb(convert.stored_segment_to_pb(value)) == value


@given(st.builds(CopyResult, custom_metadata=customs, stored_bytes=naturals, log_sha256=st.text()))
def test_copy_results_round_trip(value: CopyResult) -> None:
    assert convert.copy_result_from_pb(convert.copy_result_to_pb(value)) == value


@given(progress)
def test_verify_progress_round_trips(value: VerifyProgress) -> None:
    assert convert.verify_progress_from_pb(convert.verify_progress_to_pb(value)) == value


@given(
    st.builds(
        RemotePartitionDeleteMetadata,
        topic_id_partition=tips,
        state=delete_states,
        event_timestamp_ms=int64s,
        broker_id=int32s,
    )
)
def test_partition_deletions_round_trip(value: RemotePartitionDeleteMetadata) -> None:
    assert convert.partition_delete_from_pb(convert.partition_delete_to_pb(value)) == value


@given(policies)
def test_retention_policies_round_trip(value: RetentionPolicy) -> None:
    assert convert.retention_policy_from_pb(convert.retention_policy_to_pb(value)) == value


@given(plans)
def test_retention_plans_round_trip(value: RetentionPlan) -> None:
    assert convert.retention_plan_from_pb(convert.retention_plan_to_pb(value)) == value


@given(changes)
def test_partition_changes_round_trip(value: PartitionChange) -> None:
    assert convert.partition_change_from_pb(convert.partition_change_to_pb(value)) == value


@given(
    st.builds(
        SegmentEvent,
        sequence=naturals,
        segment_id=segment_ids,
        from_state=st.none() | segment_states,
        to_state=segment_states,
        broker_id=int32s,
        leader_epoch=st.none() | naturals,
        reason=st.text(max_size=20),
        trace_id=st.text(max_size=32),
        timestamp_ms=int64s,
    )
)
def test_segment_events_round_trip(value: SegmentEvent) -> None:
    message = convert.segment_event_to_pb(value)

    assert convert.segment_event_from_pb(message, value.segment_id) == value


@given(st.dictionaries(naturals, naturals, max_size=8))
def test_lineages_round_trip(lineage: dict[int, int]) -> None:
    assert convert.lineage_from_pb(convert.lineage_to_pb(lineage)) == lineage


@pytest.mark.parametrize("value", list(IndexType))
def test_index_types_round_trip_shifted_by_one(value: IndexType) -> None:
    assert convert.index_type_to_pb(value) == value + 1
    assert convert.index_type_from_pb(convert.index_type_to_pb(value)) is value


@pytest.mark.parametrize("value", list(IsolationLevel))
def test_isolation_levels_round_trip_shifted_by_one(value: IsolationLevel) -> None:
    assert convert.isolation_to_pb(value) == value + 1
    assert convert.isolation_from_pb(convert.isolation_to_pb(value)) is value


def test_an_absent_isolation_level_reads_uncommitted() -> None:
    assert convert.isolation_from_pb(0) is IsolationLevel.READ_UNCOMMITTED


@pytest.mark.parametrize("number", [0, 7, -1])
def test_unspecified_and_unknown_index_types_are_refused_by_name(number: int) -> None:
    with pytest.raises(InvalidRequestError, match="index_type"):
        convert.index_type_from_pb(number)


@pytest.mark.parametrize("number", [3, 99])
def test_unknown_isolation_levels_are_refused(number: int) -> None:
    with pytest.raises(InvalidRequestError, match="isolation_level"):
        convert.isolation_from_pb(number)


def test_an_absent_segment_id_is_refused_with_its_path() -> None:
    with pytest.raises(InvalidRequestError, match=r"^metadata\.segment_id is missing$") as refused:
        convert.segment_metadata_from_pb(segment_pb2.RemoteLogSegmentMetadata())
    assert refused.value.metadata == {"field": "metadata.segment_id"}


def test_a_malformed_topic_id_is_refused_with_its_path() -> None:
    message = segment_pb2.RemoteLogSegmentId(
        topic_id_partition=partition_pb2.TopicIdPartition(topic_id="short", topic="t")
    )

    with pytest.raises(InvalidRequestError, match=r"segment_id\.topic_id_partition\.topic_id"):
        convert.segment_id_from_pb(message)


def test_a_request_without_its_message_is_refused_by_name() -> None:
    request = metadata_pb.ListRetentionCandidatesRequest()

    with pytest.raises(InvalidRequestError, match=r"^policy is missing$"):
        convert.required(request, "policy", request.policy)
