"""Explanations -> messages of `aquifer.manager.v1`."""

from aquifer.manager.v1 import remote_log_manager_service_pb2 as pb

from aquifer_manager.domain.why_reasons import Explanation

__all__ = ["explanation_to_pb"]


def explanation_to_pb(explanation: Explanation) -> pb.Explanation:
    """An answer to its message."""
    segment_id = explanation.segment_id
    return pb.Explanation(
        question=pb.WhyQuestion.ValueType(explanation.question.value),
        reason=pb.WhyReason.Value(f"WHY_REASON_{explanation.reason.value}"),
        text=explanation.text,
        start_offset=explanation.start_offset,
        end_offset=explanation.end_offset,
        segment_id=None if segment_id is None else str(segment_id),
        for_ms=explanation.for_ms,
        last_error_reason=explanation.last_error_reason,
        last_error=explanation.last_error,
    )
