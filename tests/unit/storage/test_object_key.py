"""Object keys."""

from dataclasses import replace

import builders
import pytest
from aquifer_core.errors import ErrorReason, InvalidRequestError
from aquifer_core.ids import KafkaUuid, RemoteLogSegmentId, TopicIdPartition
from aquifer_storage.domain.object_key import ObjectKeys, keys_of_manifest

TOPIC_ID = KafkaUuid.parse("AAAAAAAAAAAAAAAAAAAAAQ")
SEGMENT_ID = KafkaUuid.parse("AAAAAAAAAAAAAAAAAAAAAg")


def test_keys_name_topic_partition_offset_and_copy() -> None:
    segment_id = RemoteLogSegmentId(TopicIdPartition(TOPIC_ID, "orders", 7), SEGMENT_ID)
    metadata = replace(builders.segment().metadata, segment_id=segment_id)
    keys = ObjectKeys("tier/").of(metadata)
    base = "tier/orders-AAAAAAAAAAAAAAAAAAAAAQ/7/00000000000000000100-AAAAAAAAAAAAAAAAAAAAAg"
    assert keys.all == (f"{base}.manifest", f"{base}.indexes", f"{base}.log")
    assert keys_of_manifest(keys.manifest) == keys


@pytest.mark.parametrize("topic", ["", "a/b", "..%", "ä", "x" * 250, "a\n"])
def test_topics_that_kafka_does_not_know_get_no_keys(topic: str) -> None:
    tip = TopicIdPartition(TOPIC_ID, topic, 0)
    metadata = replace(builders.segment().metadata, segment_id=RemoteLogSegmentId(tip, SEGMENT_ID))
    with pytest.raises(InvalidRequestError) as raised:
        ObjectKeys().of(metadata)
    assert raised.value.reason is ErrorReason.INVALID_TOPIC
