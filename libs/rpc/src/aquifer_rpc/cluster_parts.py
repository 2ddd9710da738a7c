"""Puts changes of the cluster together that come in parts, since gRPC takes messages of a bounded size only."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

from aquifer.metadata.v1 import cluster_metadata_service_pb2 as pb


async def whole_changes(
    parts: AsyncGenerator[pb.WatchClusterMetadataResponse, None],
) -> AsyncGenerator[pb.WatchClusterMetadataResponse, None]:
    """The changes of a watch that was begun with `accepts_parts`, each as one message; closes the watch when it is closed.

    What came of a change when the stream broke is dropped: the caller resumes from the version before it.
    """
    whole: pb.WatchClusterMetadataResponse | None = None
    async with aclosing(parts):
        async for part in parts:
            if whole is None:
                whole = part
            else:
                whole.MergeFrom(part)
            if not part.continues:
                yield _joined(whole)
                whole = None


def _joined(whole: pb.WatchClusterMetadataResponse) -> pb.WatchClusterMetadataResponse:
    if whole.continues:
        whole.continues = False
        change = whole.snapshot if whole.HasField("snapshot") else whole.delta
        topics = list(_joined_topics(change.topics))
        if len(topics) < len(change.topics):
            del change.topics[:]
            change.topics.extend(topics)
    return whole


def _joined_topics(pieces: Iterable[pb.Topic]) -> Iterable[pb.Topic]:
    """Pieces of a topic follow one another."""
    topic: pb.Topic | None = None
    for piece in pieces:
        if topic is not None and topic.topic_id == piece.topic_id:
            topic.partitions.extend(piece.partitions)
            continue
        if topic is not None:
            yield topic
        topic = piece
    if topic is not None:
        yield topic
