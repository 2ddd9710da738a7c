"""Rules of a segment's metadata (K-1.3)."""

import pytest
from aquifer_core.errors import InvalidRequestError
from aquifer_core.ids import KafkaUuid, RemoteLogSegmentId, TopicIdPartition
from aquifer_core.segment import RemoteLogSegmentMetadata

_TIP = TopicIdPartition(KafkaUuid(b"t" * 16), "events", 0)


def made(epochs: dict[int, int]) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId.generate(_TIP),
        start_offset=100,
        end_offset=199,
        broker_id=1,
        max_timestamp_ms=1,
        event_timestamp_ms=1,
        segment_size_bytes=1,
        segment_leader_epochs=epochs,
    )


def test_what_lies_below_the_first_epoch_named_counts_to_it() -> None:
    """A leader that deleted records below offset 150 knows no epoch for them, and Kafka's brokers name none (SR-25)."""
    segment = made({5: 170, 3: 150})
    assert dict(segment.segment_leader_epochs) == {3: 100, 5: 170}
    assert segment.epoch_ranges() == {3: (100, 169), 5: (170, 199)}
    assert segment == made_again(segment)


def made_again(segment: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        segment_id=segment.segment_id,
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        broker_id=segment.broker_id,
        max_timestamp_ms=segment.max_timestamp_ms,
        event_timestamp_ms=segment.event_timestamp_ms,
        segment_size_bytes=segment.segment_size_bytes,
        segment_leader_epochs={3: 120, 5: 170},
    )


@pytest.mark.parametrize("epochs", [{}, {1: 99}, {1: 100, 2: 100}, {1: 120, 2: 110}, {1: 200}])
def test_epochs_outside_the_segment_are_refused(epochs: dict[int, int]) -> None:
    with pytest.raises(InvalidRequestError):
        made(epochs)
