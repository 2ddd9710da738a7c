"""Which partitions a node leads, follows and no longer has, in messages of a size that gRPC takes."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from aquifer.metadata.v1 import remote_log_metadata_service_pb2 as pb
from aquifer_core.ids import TopicIdPartition
from aquifer_rpc import convert

__all__ = ["leadership_requests", "stop_requests"]

# With the longest names some 1.5 MB; a message may have 4 MiB.
_PER_MESSAGE: Final = 5_000

T = TypeVar("T")


def leadership_requests(
    leaders: Mapping[TopicIdPartition, int], followers: Collection[TopicIdPartition]
) -> Iterator[pb.OnPartitionLeadershipChangesRequest]:
    """Requests that say it together, in any order."""
    for led in _parts(list(leaders.items())):
        yield pb.OnPartitionLeadershipChangesRequest(
            leaders=[
                pb.LeadPartition(
                    topic_id_partition=convert.tip_to_pb(partition), leader_epoch=leader_epoch
                )
                for partition, leader_epoch in led
            ]
        )
    for followed in _parts(list(followers)):
        yield pb.OnPartitionLeadershipChangesRequest(
            followers=list(map(convert.tip_to_pb, followed))
        )


def stop_requests(partitions: Collection[TopicIdPartition]) -> Iterator[pb.OnStopPartitionsRequest]:
    """Requests that say it together, in any order."""
    for stopped in _parts(list(partitions)):
        yield pb.OnStopPartitionsRequest(partitions=list(map(convert.tip_to_pb, stopped)))


def _parts(things: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(things), _PER_MESSAGE):
        yield things[start : start + _PER_MESSAGE]
