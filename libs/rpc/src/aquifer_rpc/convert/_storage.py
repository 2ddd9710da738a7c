"""Answers of the storage service."""

from aquifer.storage.v1 import remote_storage_service_pb2 as pb
from aquifer_core.segment import CopyResult, VerifyFinding, VerifyProgress


def copy_result_to_pb(result: CopyResult) -> pb.CopyLogSegmentDataResponse:
    """The result of a copy to its message."""
    return pb.CopyLogSegmentDataResponse(
        custom_metadata=result.custom_metadata,
        stored_bytes=result.stored_bytes,
        log_sha256=result.log_sha256,
        remote_log_index=result.remote_log_index,
    )


def copy_result_from_pb(message: pb.CopyLogSegmentDataResponse) -> CopyResult:
    """The result of a copy from its message."""
    return CopyResult(
        custom_metadata=message.custom_metadata if message.HasField("custom_metadata") else None,
        stored_bytes=message.stored_bytes,
        log_sha256=message.log_sha256,
        remote_log_index=message.remote_log_index if message.HasField("remote_log_index") else None,
    )


def verify_progress_to_pb(progress: VerifyProgress) -> pb.VerifySegmentResponse:
    """Progress of a verification to its message."""
    return pb.VerifySegmentResponse(
        verified_bytes=progress.verified_bytes,
        total_bytes=progress.total_bytes,
        findings=[
            pb.VerifyFinding(
                part=finding.part,
                chunk=finding.chunk,
                position=finding.position,
                message=finding.message,
            )
            for finding in progress.findings
        ],
        done=progress.done,
    )


def verify_progress_from_pb(message: pb.VerifySegmentResponse) -> VerifyProgress:
    """Progress of a verification from its message."""
    return VerifyProgress(
        verified_bytes=message.verified_bytes,
        total_bytes=message.total_bytes,
        findings=tuple(
            VerifyFinding(
                part=finding.part,
                chunk=finding.chunk if finding.HasField("chunk") else None,
                position=finding.position if finding.HasField("position") else None,
                message=finding.message,
            )
            for finding in message.findings
        ),
        done=message.done,
    )
