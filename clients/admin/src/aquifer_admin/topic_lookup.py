"""Topics by name, also those of Apache Kafka clusters, which the cluster metadata does not know."""

from contextlib import aclosing

from aquifer.common.v1 import segment_pb2
from aquifer.metadata.v1 import cluster_metadata_service_pb2 as cluster_pb2
from aquifer.storage.v1 import remote_storage_service_pb2 as storage_pb2
from aquifer.storage.v1.remote_storage_service_pb2_grpc import RemoteStorageServiceStub
from aquifer_core.errors import AquiferError, RemoteResourceNotFoundError

from aquifer_admin.cluster import find_topic
from aquifer_admin.connection import Role, Session

# Listing reads one manifest after the other.
_LISTING_S = 600.0


async def locate_topic(session: Session, name: str) -> cluster_pb2.Topic:
    """A topic by name: of the cluster metadata, or else of what the store holds, as brokers of Apache Kafka left it.

    Of several topics of the name in the store, one deleted and made anew, it is the one that was written to last.

    Raises:
        RemoteResourceNotFoundError: neither knows it.
        AquiferError: the cluster does not know it, and why the store could not be asked.
    """
    try:
        return await find_topic(session.peer(Role.METADATA), name)
    except RemoteResourceNotFoundError as unknown:
        try:
            found = await _stored_topic(session, name)
        except AquiferError as error:
            text = (
                f"{unknown.message}; whether brokers of Apache Kafka have it cannot be said:"
                f" {error.message}"
            )
            raise type(error)(text, reason=error.reason, metadata=error.metadata) from error
        if found is None:
            raise
        return found


async def _stored_topic(session: Session, name: str) -> cluster_pb2.Topic | None:
    partitions: dict[str, set[int]] = {}
    written_ms: dict[str, int] = {}
    for metadata in await _stored_segments(session, name):
        where = metadata.segment_id.topic_id_partition
        partitions.setdefault(where.topic_id, set()).add(where.partition)
        written_ms[where.topic_id] = max(
            written_ms.get(where.topic_id, 0), metadata.event_timestamp_ms
        )
    if not partitions:
        return None
    topic_id = max(partitions, key=lambda each: written_ms[each])
    numbers = sorted(partitions[topic_id])
    return cluster_pb2.Topic(
        name=name,
        topic_id=topic_id,
        partitions=[cluster_pb2.Partition(partition=number) for number in numbers],
    )


async def _stored_segments(
    session: Session, name: str
) -> list[segment_pb2.RemoteLogSegmentMetadata]:
    peer = session.peer(Role.STORAGE)
    stub = RemoteStorageServiceStub(peer.channel)
    request = storage_pb2.ListStoredSegmentsRequest(prefix=f"{name}-")
    answers = peer.read(stub.ListStoredSegments, request, timeout_s=_LISTING_S)
    async with aclosing(answers) as listed:
        found = [answer.segment.metadata async for answer in listed]
    return [each for each in found if each.segment_id.topic_id_partition.topic == name]
