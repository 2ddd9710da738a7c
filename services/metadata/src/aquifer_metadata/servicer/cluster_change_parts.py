"""Changes of the cluster as messages of bounded size."""

from collections.abc import Iterator, Mapping, MutableSequence
from typing import Final

from aquifer.metadata.v1 import cluster_metadata_service_pb2 as pb

from aquifer_metadata.domain import cluster
from aquifer_metadata.servicer.cluster_convert import broker_to_pb, topic_to_pb

PART_BYTES: Final = 1024 * 1024
"""A message ends with the topic that brings it here: gRPC takes 4 MiB by default."""
_PIECE_PARTITIONS: Final = 10_000


def change_to_pb(value: cluster.ClusterChange) -> pb.WatchClusterMetadataResponse:
    """A change as one message, whatever its size, for callers that know no parts."""
    whole = _without_topics(value)
    if value.content is not None:
        _topics_of(whole).extend(topic_to_pb(topic) for topic in value.content.topics)
    return whole


def change_parts(
    value: cluster.ClusterChange,
    part_bytes: int = PART_BYTES,
    piece_partitions: int = _PIECE_PARTITIONS,
) -> Iterator[pb.WatchClusterMetadataResponse]:
    """A change as messages that continue one another; a part is larger by one topic, or a piece of it, at most."""
    part = _without_topics(value)
    if value.content is None:
        yield part
        return
    size = 0
    for topic in value.content.topics:
        for piece in _pieces(topic, piece_partitions):
            if size >= part_bytes:
                part.continues = True
                yield part
                part, size = _next_part(part), 0
            _add(part, piece)
            size += piece.ByteSize()
    yield part


def _pieces(topic: cluster.Topic, most: int) -> Iterator[pb.Topic]:
    """A topic, and under the same id the partitions that are too many for one message."""
    whole = topic_to_pb(topic)
    yield whole if len(topic.partitions) <= most else _piece(whole, 0, most)
    for first in range(most, len(topic.partitions), most):
        yield _piece(whole, first, most)


def _piece(whole: pb.Topic, first: int, most: int) -> pb.Topic:
    return pb.Topic(
        topic_id=whole.topic_id,
        name=whole.name,
        partitions=whole.partitions[first : first + most],
        configs=whole.configs,
    )


def _add(part: pb.WatchClusterMetadataResponse, piece: pb.Topic) -> None:
    topics = _topics_of(part)
    if topics and topics[-1].topic_id == piece.topic_id:
        topics[-1].partitions.extend(piece.partitions)
    else:
        topics.append(piece)


def _without_topics(value: cluster.ClusterChange) -> pb.WatchClusterMetadataResponse:
    content = value.content
    response = pb.WatchClusterMetadataResponse(version=value.version)
    if isinstance(content, cluster.ClusterSnapshot):
        response.snapshot.CopyFrom(
            pb.ClusterSnapshot(
                cluster_id=content.cluster_id,
                brokers=map(broker_to_pb, content.brokers),
                broker_configs=_configs_to_pb(content.broker_configs),
            )
        )
    elif content is not None:
        response.delta.CopyFrom(
            pb.ClusterDelta(
                brokers=map(broker_to_pb, content.brokers),
                deleted_topic_ids=map(str, content.deleted_topic_ids),
                broker_configs=_configs_to_pb(content.broker_configs),
            )
        )
    return response


def _next_part(part: pb.WatchClusterMetadataResponse) -> pb.WatchClusterMetadataResponse:
    """Empty, of the same change."""
    following = pb.WatchClusterMetadataResponse(version=part.version)
    if part.HasField("snapshot"):
        following.snapshot.SetInParent()
    else:
        following.delta.SetInParent()
    return following


def _topics_of(
    part: pb.WatchClusterMetadataResponse,
) -> MutableSequence[pb.Topic]:
    return part.snapshot.topics if part.HasField("snapshot") else part.delta.topics


def _configs_to_pb(configs: Mapping[str, Mapping[str, str]]) -> dict[str, pb.BrokerConfigs]:
    return {name: pb.BrokerConfigs(configs=values) for name, values in configs.items()}
