"""What settings can be asked for and altered."""

from enum import IntEnum
from typing import Any

from aquifer_core.errors import ErrorReason, InvalidRequestError, RemoteResourceNotFoundError

from aquifer_broker.handlers.config_entries import Dynamic
from aquifer_broker.handlers.services import BrokerServices

__all__ = ["ResourceType", "dynamic_of", "no_topic", "resource_type"]


class ResourceType(IntEnum):
    """Kafka's `ConfigResource.Type`, as far as there are settings here."""

    TOPIC = 2
    BROKER = 4


def resource_type(resource: Any) -> ResourceType:
    """The type of a resource of a request.

    Raises:
        InvalidRequestError: there are no settings of it.
    """
    try:
        return ResourceType(resource.resource_type)
    except ValueError:
        raise InvalidRequestError(
            f"resource type {resource.resource_type} has no settings here: ask for topics (2) or brokers (4)"
        ) from None


def dynamic_of(services: BrokerServices) -> Dynamic:
    """What was altered of this broker's settings."""
    view = services.view
    return Dynamic(
        own=view.dynamic_configs(str(services.config.node_id)),
        cluster_wide=view.dynamic_configs(""),
    )


def no_topic(name: str) -> RemoteResourceNotFoundError:
    """The refusal of a topic that is not there."""
    return RemoteResourceNotFoundError(
        f"there is no topic {name!r}", reason=ErrorReason.TOPIC_NOT_FOUND
    )
