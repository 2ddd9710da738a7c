"""Every state change of every segment, kept by the RemoteLogMetadataManager in memory."""

from collections.abc import Callable

from aquifer_core.ids import KafkaUuid, RemoteLogSegmentId
from aquifer_core.ports import Clock, SegmentEvent
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState

__all__ = ["SegmentHistory"]


class SegmentHistory:
    """Events in the order in which they happened; segments that are gone keep theirs."""

    def __init__(self, clock: Clock, trace_id: Callable[[], str]) -> None:
        """Prepares; `trace_id` gives that of the call under way, or an empty text."""
        self._clock = clock
        self._trace_id = trace_id
        self._events: list[SegmentEvent] = []

    def add(
        self,
        after: RemoteLogSegmentMetadata,
        before: RemoteLogSegmentState | None,
        leader_epoch: int | None,
        reason: str,
    ) -> None:
        """Records that a segment is in a state now; `before` None: it was not known."""
        self._events.append(
            SegmentEvent(
                sequence=len(self._events) + 1,
                segment_id=after.segment_id,
                from_state=before,
                to_state=after.state,
                broker_id=after.broker_id,
                leader_epoch=leader_epoch,
                reason=reason,
                trace_id=self._trace_id(),
                timestamp_ms=self._clock.now_ms(),
            )
        )

    def of(self, segment_id: RemoteLogSegmentId) -> list[SegmentEvent]:
        """Events of a segment, oldest first."""
        return [event for event in self._events if event.segment_id == segment_id]

    def last_state(self, segment: KafkaUuid) -> RemoteLogSegmentState | None:
        """The state that an id reached last, in whatever partition; None: never seen."""
        return next(
            (event.to_state for event in reversed(self._events) if event.segment_id.id == segment),
            None,
        )

    def last_state_in(self, segment_id: RemoteLogSegmentId) -> RemoteLogSegmentState | None:
        """The same, when the id was seen in its partition."""
        return self.last_state(segment_id.id) if self.of(segment_id) else None
