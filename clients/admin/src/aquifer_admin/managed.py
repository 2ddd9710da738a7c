"""Partitions as their managers see them."""

from collections.abc import Sequence
from contextlib import aclosing

from aquifer.common.v1 import partition_pb2
from aquifer.manager.v1 import remote_log_manager_service_pb2 as manager_pb2
from aquifer.manager.v1.remote_log_manager_service_pb2_grpc import RemoteLogManagerServiceStub
from aquifer_core.errors import ErrorReason, RemoteResourceNotFoundError

from aquifer_admin import documents
from aquifer_admin.cluster import in_parallel
from aquifer_admin.connection import Peer, Role, Session
from aquifer_admin.documents import Document

__all__ = ["find_manager", "managers_of", "read_partitions"]


async def read_partitions(
    session: Session, topic: str, managers: Sequence[Peer] | None = None
) -> list[Document]:
    """State of all partitions of all managers, or of some, each partition once."""
    peers = session.replicas(Role.MANAGER) if managers is None else managers
    listings = await in_parallel(_read_listing(peer, topic) for peer in peers)
    # A partition that moved may still be listed by its old manager; the one of the leader counts.
    best: dict[tuple[str, int], Document] = {}
    for row in (row for listing in listings for row in listing):
        key = (row["topic_id"], row["partition"])
        known = best.get(key)
        if known is None or _rank(row) > _rank(known):
            best[key] = row
    return sorted(best.values(), key=lambda row: (row["topic"], row["partition"]))


def _rank(row: Document) -> tuple[int, bool]:
    return (row["leader_epoch"], row["leader"])


async def _read_listing(peer: Peer, topic: str) -> list[Document]:
    stub = RemoteLogManagerServiceStub(peer.channel)
    request = manager_pb2.ListPartitionsRequest(topic=topic)
    async with aclosing(peer.read(stub.ListPartitions, request)) as pages:
        return [
            documents.partition_state(state, peer.address)
            async for page in pages
            for state in page.partitions
        ]


async def managers_of(
    session: Session, where: partition_pb2.TopicIdPartition
) -> list[tuple[Peer, manager_pb2.PartitionState]]:
    """The managers that know a partition, the one that works for its leader first."""
    known: list[tuple[Peer, manager_pb2.PartitionState]] = []
    request = manager_pb2.DescribePartitionRequest(topic_id_partition=where)
    for peer in session.replicas(Role.MANAGER):
        stub = RemoteLogManagerServiceStub(peer.channel)
        try:
            answer = await peer.ask(stub.DescribePartition, request)
        except RemoteResourceNotFoundError:
            continue
        known.append((peer, answer.partition))
    return sorted(known, key=lambda each: (each[1].leader_epoch, each[1].leader), reverse=True)


async def find_manager(
    session: Session, where: partition_pb2.TopicIdPartition
) -> tuple[Peer, manager_pb2.PartitionState]:
    """The manager that works for the partition's leader, else one that knows the partition."""
    known = await managers_of(session, where)
    if not known:
        raise RemoteResourceNotFoundError(
            f"no manager works for {where.topic}-{where.partition}; is the topic tiered,"
            " and is its leader alive? See `aquifer status`",
            reason=ErrorReason.PARTITION_NOT_FOUND,
            metadata={"topicIdPartition": f"{where.topic_id}:{where.topic}-{where.partition}"},
        )
    return known[0]
