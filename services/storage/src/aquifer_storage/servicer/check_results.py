"""Results of the store's checks on the wire."""

from typing import Final

from aquifer.storage.v1 import remote_storage_service_pb2 as pb

from aquifer_storage.domain.store_check import CheckResult, Outcome

_OUTCOMES: Final = {
    Outcome.OK: pb.CHECK_OUTCOME_OK,
    Outcome.DEGRADED: pb.CHECK_OUTCOME_DEGRADED,
    Outcome.FAILED: pb.CHECK_OUTCOME_FAILED,
}


def check_result_to_pb(result: CheckResult) -> pb.CheckStoreResponse:
    """Convert a result."""
    return pb.CheckStoreResponse(
        name=result.name,
        outcome=_OUTCOMES[result.outcome],
        message=result.message,
        duration_ms=result.duration_ms,
        number=result.number,
        total=result.total,
    )
