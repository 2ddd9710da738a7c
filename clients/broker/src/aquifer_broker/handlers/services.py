"""What handlers work with."""

from dataclasses import dataclass, field
from typing import Any

from aquifer_core.ids import KafkaUuid
from aquifer_core.ports import Clock

from aquifer_broker.cluster.hosted_partitions import HostedPartitions
from aquifer_broker.cluster.ports import ClusterMetadata
from aquifer_broker.cluster.view import ClusterView, TopicInfo
from aquifer_broker.config.broker_config import BrokerConfig
from aquifer_broker.coordination.group_coordinator import GroupCoordinator
from aquifer_broker.coordination.producer_ids import ProducerIdAllocator
from aquifer_broker.handlers.hot_traffic import HotTraffic
from aquifer_broker.handlers.remote_log import RemoteLog
from aquifer_broker.log.log_manager import LogManager
from aquifer_broker.protocol.budget import ResponseBudget

__all__ = ["BrokerServices", "topic_key"]


def topic_key(requested: object) -> dict[str, Any]:
    """How a request names a topic, by id or name, as its response of the same version does."""
    names = ("topic_id", "name", "topic")
    return {name: getattr(requested, name) for name in names if hasattr(requested, name)}


@dataclass(slots=True, kw_only=True)
class BrokerServices:
    """The parts of a broker node; `remote` is None when tiering is disabled."""

    config: BrokerConfig
    clock: Clock
    view: ClusterView
    metadata: ClusterMetadata
    logs: LogManager
    partitions: HostedPartitions
    groups: GroupCoordinator
    producer_ids: ProducerIdAllocator
    response_budget: ResponseBudget
    remote: RemoteLog | None = None
    hot: HotTraffic = field(default_factory=HotTraffic)

    def topic_of(self, requested: object) -> TopicInfo | None:
        """The topic that an element of a request names by `topic_id`, or by `name` or `topic` in older versions."""
        key = topic_key(requested)
        if key.get("topic_id") is not None:
            return self.view.topic_by_id(KafkaUuid(key["topic_id"].bytes))
        name = key.get("name") or key.get("topic")
        return self.view.topic(name) if name is not None else None
