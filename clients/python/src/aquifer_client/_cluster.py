"""The cluster metadata, for programs that look at a cluster or administer it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Self

from aquifer.metadata.v1 import cluster_metadata_service_pb2 as pb
from aquifer.metadata.v1.cluster_metadata_service_pb2_grpc import ClusterMetadataServiceStub
from aquifer_core.errors import InternalError
from aquifer_core.ids import KafkaUuid
from aquifer_rpc.calls import call_stream, call_unary
from aquifer_rpc.channel import Channel, connect
from aquifer_rpc.cluster_parts import whole_changes

from aquifer_client._cluster_values import (
    ClusterSnapshot,
    ConfigResource,
    NewTopic,
    TopicResult,
    new_topic_to_pb,
    snapshot_from_pb,
    topic_result_from_pb,
)

if TYPE_CHECKING:
    from aquifer.metadata.v1.cluster_metadata_service_pb2_grpc import (
        ClusterMetadataServiceAsyncStub,
    )
    from aquifer_rpc.settings import GrpcClientSettings


class ClusterMetadataClient:
    """Asks the metadata service about the cluster; an async context manager.

    What a broker does for itself (leases, in-sync replicas, producer ids) is not here: it belongs to the broker. Every method
    raises `UnavailableError` when no metadata service answers.
    """

    def __init__(self, channel: Channel) -> None:
        """Takes a channel over and closes it at the end."""
        self._channel = channel
        self._stub: ClusterMetadataServiceAsyncStub = ClusterMetadataServiceStub(channel)

    @classmethod
    def connect(
        cls, endpoints: str | Sequence[str], *, settings: GrpcClientSettings | None = None
    ) -> Self:
        """A client of the metadata services at `host:port`, several as a list or separated by commas."""
        return cls(connect(endpoints, settings=settings))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the channel; idempotent."""
        await self._channel.close()

    async def snapshot(self) -> ClusterSnapshot:
        """The whole cluster as it is now."""
        request = pb.WatchClusterMetadataRequest(accepts_parts=True)
        answers = call_stream(self._stub.WatchClusterMetadata, request)
        async with aclosing(whole_changes(answers)) as changes:
            async for answer in changes:
                if answer.WhichOneof("change") == "snapshot":
                    return snapshot_from_pb(answer.version, answer.snapshot)
        raise InternalError("the watch of the cluster ended without a snapshot")

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """Outcomes in the order given. Not repeated by itself: a second try would meet the topics of the first."""
        request = pb.CreateTopicsRequest(
            topics=map(new_topic_to_pb, topics), validate_only=validate_only
        )
        await self._channel.until_connected()
        answer = await call_unary(self._stub.CreateTopics, request, retry=False)
        return list(map(topic_result_from_pb, answer.results))

    async def delete_topics(
        self, names: Collection[str] = (), topic_ids: Collection[KafkaUuid] = ()
    ) -> list[TopicResult]:
        """Outcomes, names first, then ids. Remote data is deleted later, by the manager. Not repeated by itself."""
        request = pb.DeleteTopicsRequest(names=names, topic_ids=map(str, topic_ids))
        await self._channel.until_connected()
        answer = await call_unary(self._stub.DeleteTopics, request, retry=False)
        return list(map(topic_result_from_pb, answer.results))

    async def create_partitions(
        self, total_counts: Mapping[str, int], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """Raises the number of partitions of topics (name -> number afterwards). Not repeated by itself."""
        request = pb.CreatePartitionsRequest(
            topics=[
                pb.NewPartitions(name=name, total_count=count)
                for name, count in total_counts.items()
            ],
            validate_only=validate_only,
        )
        await self._channel.until_connected()
        answer = await call_unary(self._stub.CreatePartitions, request, retry=False)
        return list(map(topic_result_from_pb, answer.results))

    async def alter_configs(
        self,
        resource: ConfigResource,
        name: str,
        changes: Mapping[str, str | None],
        *,
        validate_only: bool = False,
    ) -> dict[str, str]:
        """Sets settings, or takes them back to their defaults (None), all or none. Idempotent.

        Args:
            resource: kind of what is configured.
            name: topic name, or broker id; empty for the default of all brokers.
            changes: setting -> value.
            validate_only: check only.

        Returns:
            What is set afterwards.

        Raises:
            RemoteResourceNotFoundError: no such topic.
            InvalidConfigurationError: a setting or value is refused.
        """
        request = pb.AlterConfigsRequest(
            resource_type=pb.ConfigResourceType.ValueType(resource),
            resource_name=name,
            changes=[
                pb.ConfigChange(
                    key=key,
                    value=value,
                    operation=(
                        pb.CONFIG_OPERATION_DELETE if value is None else pb.CONFIG_OPERATION_SET
                    ),
                )
                for key, value in changes.items()
            ],
            validate_only=validate_only,
        )
        return dict((await call_unary(self._stub.AlterConfigs, request)).configs)

    async def describe_configs(self, resource: ConfigResource, name: str) -> dict[str, str]:
        """What is set; defaults are left out.

        Raises:
            RemoteResourceNotFoundError: no such topic.
        """
        request = pb.DescribeConfigsRequest(
            resource_type=pb.ConfigResourceType.ValueType(resource), resource_name=name
        )
        return dict((await call_unary(self._stub.DescribeConfigs, request)).configs)

    async def list_groups(self) -> list[str]:
        """Consumer groups that have offsets, sorted."""
        answer = await call_unary(self._stub.ListGroups, pb.ListGroupsRequest())
        return list(answer.group_ids)

    async def fetch_offsets(self, group_id: str) -> dict[tuple[str, int], int]:
        """(topic, partition) -> next offset to read, of everything the group has committed."""
        answer = await call_unary(
            self._stub.FetchOffsets, pb.FetchOffsetsRequest(group_id=group_id)
        )
        return {(each.topic, each.partition): each.offset for each in answer.offsets}
