"""Domain values <-> protobuf messages, in symmetrical pairs `x_to_pb` and `x_from_pb`.

`from_pb` refuses with `InvalidRequestError` what the domain cannot hold: a message that is absent, an enum that is
unspecified or unknown. Kafka's enum numbers start at 0 and ours on the wire at 1, so enums shift by one.
"""

from aquifer_rpc.convert._field import (
    required,
)
from aquifer_rpc.convert._metadata import (
    partition_change_from_pb,
    partition_change_to_pb,
    partition_delete_from_pb,
    partition_delete_to_pb,
    partition_deletion_to_pb,
    retention_plan_from_pb,
    retention_plan_to_pb,
    retention_policy_from_pb,
    retention_policy_to_pb,
    retention_reason_from_pb,
    retention_reason_to_pb,
    segment_event_from_pb,
    segment_event_to_pb,
)
from aquifer_rpc.convert._partition import (
    isolation_from_pb,
    isolation_to_pb,
    lineage_from_pb,
    lineage_to_pb,
    tip_from_pb,
    tip_to_pb,
    uuid_from_pb,
)
from aquifer_rpc.convert._segment import (
    index_type_from_pb,
    index_type_to_pb,
    partition_delete_state_from_pb,
    partition_delete_state_to_pb,
    segment_id_from_pb,
    segment_id_to_pb,
    segment_metadata_from_pb,
    segment_metadata_to_pb,
    segment_state_from_pb,
    segment_state_to_pb,
    segment_update_from_pb,
    segment_update_to_pb,
    stored_segment_from_pb,
    stored_segment_to_pb,
)
from aquifer_rpc.convert._storage import (
    copy_result_from_pb,
    copy_result_to_pb,
    verify_progress_from_pb,
    verify_progress_to_pb,
)
from aquifer_rpc.convert._task_pauses import (
    pause_targets_from_pb,
    pause_targets_to_pb,
    task_pause_from_pb,
    task_pause_to_pb,
)

__all__ = [
    "copy_result_from_pb",
    "copy_result_to_pb",
    "index_type_from_pb",
    "index_type_to_pb",
    "isolation_from_pb",
    "isolation_to_pb",
    "lineage_from_pb",
    "lineage_to_pb",
    "partition_change_from_pb",
    "partition_change_to_pb",
    "partition_delete_from_pb",
    "partition_delete_state_from_pb",
    "partition_delete_state_to_pb",
    "partition_delete_to_pb",
    "partition_deletion_to_pb",
    "pause_targets_from_pb",
    "pause_targets_to_pb",
    "required",
    "retention_plan_from_pb",
    "retention_plan_to_pb",
    "retention_policy_from_pb",
    "retention_policy_to_pb",
    "retention_reason_from_pb",
    "retention_reason_to_pb",
    "segment_event_from_pb",
    "segment_event_to_pb",
    "segment_id_from_pb",
    "segment_id_to_pb",
    "segment_metadata_from_pb",
    "segment_metadata_to_pb",
    "segment_state_from_pb",
    "segment_state_to_pb",
    "segment_update_from_pb",
    "segment_update_to_pb",
    "stored_segment_from_pb",
    "stored_segment_to_pb",
    "task_pause_from_pb",
    "task_pause_to_pb",
    "tip_from_pb",
    "tip_to_pb",
    "uuid_from_pb",
    "verify_progress_from_pb",
    "verify_progress_to_pb",
]
