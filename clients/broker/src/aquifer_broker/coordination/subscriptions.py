"""Reads what consumers subscribe to from the metadata they join with."""

import struct

from kio.schema.consumer_protocol_subscription.v0.data import ConsumerProtocolSubscription
from kio.serial import entity_reader
from kio.serial.errors import SerialError
from kio.serial.readers import read_int16

from aquifer_broker.coordination.group import Group
from aquifer_broker.protocol.request_shape import ArrayTooLongError, array_check

__all__ = ["subscribed_topics"]

_read_subscription = entity_reader(ConsumerProtocolSubscription)
_check_subscription = array_check(ConsumerProtocolSubscription)


def subscribed_topics(group: Group) -> set[str]:
    """Topics that members of a consumer group subscribe to; unreadable metadata counts as none."""
    topics: set[str] = set()
    for member in group.members:
        metadata = member.metadata(group.protocol_name)
        try:
            # Later versions only add fields at the end.
            _, size = read_int16(metadata, 0)
            _check_subscription(memoryview(metadata), size)
            subscription, _ = _read_subscription(metadata, size)
        except (SerialError, ValueError, IndexError, struct.error, ArrayTooLongError):
            continue
        topics.update(subscription.topics)
    return topics
