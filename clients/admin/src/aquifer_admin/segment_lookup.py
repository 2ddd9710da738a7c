"""Finds remote segments: by id through listings, or all finished ones of a topic."""

from typing import Final

import typer
from aquifer.common.v1 import partition_pb2, segment_pb2
from aquifer_core.errors import ErrorReason, InvalidRequestError, RemoteResourceNotFoundError
from aquifer_core.ids import KafkaUuid

from aquifer_admin.cluster import (
    in_parallel,
    partitions_of,
    read_segments,
    read_segments_of_all,
    read_snapshot,
)
from aquifer_admin.connection import Role, Session
from aquifer_admin.topic_lookup import locate_topic

FINISHED: Final = segment_pb2.REMOTE_LOG_SEGMENT_STATE_COPY_SEGMENT_FINISHED


async def finished_segments(
    session: Session, topic: str, partition: int | None
) -> list[segment_pb2.RemoteLogSegmentMetadata]:
    """Finished segments of a topic, or of one partition of it.

    Raises:
        RemoteResourceNotFoundError: there is no such topic or partition.
    """
    peer = session.peer(Role.METADATA)
    found = await locate_topic(session, topic)
    listings = await read_segments_of_all(peer, partitions_of(found, partition))
    return [each for listing in listings for each in listing if each.state == FINISHED]


async def find_segment(
    session: Session, segment_id: str, topic: str | None, partition: int | None
) -> segment_pb2.RemoteLogSegmentMetadata:
    """Looks for an id through the listings, of all topics when none is named.

    Raises:
        RemoteResourceNotFoundError: it is in none of them.
        BadParameter: it is no id.
    """
    check_id(segment_id)
    peer = session.peer(Role.METADATA)

    async def search(
        where: partition_pb2.TopicIdPartition,
    ) -> segment_pb2.RemoteLogSegmentMetadata | None:
        listing = await read_segments(peer, where)
        return next((each for each in listing if each.segment_id.id == segment_id), None)

    searched = await partitions_to_search(session, topic, partition)
    for found in await in_parallel(search(where) for where in searched):
        if found is not None:
            return found
    raise unknown_segment(segment_id)


async def partitions_to_search(
    session: Session, topic: str | None, partition: int | None
) -> list[partition_pb2.TopicIdPartition]:
    """Partitions that a search is narrowed to; all that there are when no topic is named.

    Raises:
        RemoteResourceNotFoundError: there is no such topic or partition.
        BadParameter: a partition without topic.
    """
    if topic is not None:
        return partitions_of(await locate_topic(session, topic), partition)
    if partition is not None:
        raise typer.BadParameter("--partition needs --topic; give both")
    topics = (await read_snapshot(session.peer(Role.METADATA))).topics
    return [where for each in topics for where in partitions_of(each)]


def deleted_partition(
    topic: str | None, topic_id: str, partition: int | None
) -> partition_pb2.TopicIdPartition:
    """A partition as given: the cluster does not know it any more.

    Raises:
        BadParameter: something is missing.
    """
    check_id(topic_id)
    if topic is None or partition is None:
        raise typer.BadParameter("--topic-id needs --topic and --partition; give all three")
    return partition_pb2.TopicIdPartition(topic=topic, topic_id=topic_id, partition=partition)


def check_id(segment_id: str) -> None:
    """Refuses what is no id.

    Raises:
        BadParameter: not 22 characters of URL-safe base64.
    """
    try:
        KafkaUuid.parse(segment_id)
    except InvalidRequestError as error:
        raise typer.BadParameter(f"{error.message}; `aquifer segments list` shows ids") from error


def unknown_segment(segment_id: str) -> RemoteResourceNotFoundError:
    """The failure of a search."""
    return RemoteResourceNotFoundError(
        f"metadata knows no segment {segment_id} in the topics searched; `aquifer segments list TOPIC`"
        " shows what there is",
        reason=ErrorReason.SEGMENT_NOT_FOUND,
        metadata={"segmentId": segment_id},
    )
