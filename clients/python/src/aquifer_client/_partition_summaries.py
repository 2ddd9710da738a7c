"""Summaries of partitions <-> messages."""

from collections.abc import Sequence

from aquifer.metadata.v1 import remote_log_metadata_service_pb2 as pb
from aquifer_core.errors import InternalError
from aquifer_core.ids import TopicIdPartition
from aquifer_core.partition_summary import PartitionSummary
from aquifer_rpc import convert


def summaries_request(
    partitions: Sequence[tuple[TopicIdPartition, int | None]],
) -> pb.SummarizePartitionsRequest:
    """The question."""
    return pb.SummarizePartitionsRequest(
        partitions=[
            pb.SummarizePartition(topic_id_partition=convert.tip_to_pb(tip), known_version=known)
            for tip, known in partitions
        ]
    )


def summaries_from_pb(
    answer: pb.SummarizePartitionsResponse, asked: int
) -> list[PartitionSummary | None]:
    """The answer, in the order asked.

    Raises:
        InternalError: it has another number of partitions than were asked for.
    """
    if len(answer.partitions) != asked:
        raise InternalError(f"{asked} partitions were asked for, {len(answer.partitions)} came")
    return [None if each.unchanged else _from_pb(each) for each in answer.partitions]


def _from_pb(summary: pb.PartitionSummary) -> PartitionSummary:
    return PartitionSummary(
        version=summary.version,
        earliest_log_offset=(
            summary.earliest_log_offset if summary.HasField("earliest_log_offset") else None
        ),
        segments=summary.segments,
        unfinished_segments=summary.unfinished_segments,
        oldest_timestamp_ms=summary.oldest_timestamp_ms,
        highest_end_offset=summary.highest_end_offset,
        highest_offsets={each.leader_epoch: each.offset for each in summary.highest_offsets},
    )
