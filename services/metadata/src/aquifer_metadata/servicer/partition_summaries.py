"""Summaries of partitions <-> messages."""

from aquifer.metadata.v1 import remote_log_metadata_service_pb2 as pb
from aquifer_core.ids import TopicIdPartition
from aquifer_core.partition_summary import PartitionSummary
from aquifer_rpc import convert

__all__ = ["summaries_from_request", "summary_to_pb"]


def summaries_from_request(
    request: pb.SummarizePartitionsRequest,
) -> list[tuple[TopicIdPartition, int | None]]:
    """Partitions with the versions that the caller knows."""
    return [
        (
            convert.tip_from_pb(each.topic_id_partition),
            each.known_version if each.HasField("known_version") else None,
        )
        for each in request.partitions
    ]


def summary_to_pb(summary: PartitionSummary | None, known: int | None) -> pb.PartitionSummary:
    """A summary; None: the caller knows it."""
    if summary is None:
        return pb.PartitionSummary(version=known or 0, unchanged=True)
    return pb.PartitionSummary(
        version=summary.version,
        earliest_log_offset=summary.earliest_log_offset,
        segments=summary.segments,
        unfinished_segments=summary.unfinished_segments,
        oldest_timestamp_ms=summary.oldest_timestamp_ms,
        highest_end_offset=summary.highest_end_offset,
        highest_offsets=[
            pb.EpochHighestOffset(leader_epoch=epoch, offset=offset)
            for epoch, offset in sorted(summary.highest_offsets.items())
        ],
    )
