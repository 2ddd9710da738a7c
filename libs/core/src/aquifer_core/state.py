"""State machines of a remote log segment and of a remote partition's deletion (K-1.3)."""

from enum import IntEnum


class RemoteLogSegmentState(IntEnum):
    """State of one copy; values are Kafka's.

    ::

        (none) -> COPY_SEGMENT_STARTED -> COPY_SEGMENT_FINISHED
                          |                        |
                          +---> DELETE_SEGMENT_STARTED -> DELETE_SEGMENT_FINISHED

    Every state may follow itself, so that a repeated write is harmless.
    """

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class RemotePartitionDeleteState(IntEnum):
    """State of the deletion of a partition's remote data; values are Kafka's."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


_S = RemoteLogSegmentState
_SEGMENT_TRANSITIONS: dict[RemoteLogSegmentState | None, frozenset[RemoteLogSegmentState]] = {
    None: frozenset({_S.COPY_SEGMENT_STARTED}),
    _S.COPY_SEGMENT_STARTED: frozenset(
        {_S.COPY_SEGMENT_STARTED, _S.COPY_SEGMENT_FINISHED, _S.DELETE_SEGMENT_STARTED}
    ),
    _S.COPY_SEGMENT_FINISHED: frozenset({_S.COPY_SEGMENT_FINISHED, _S.DELETE_SEGMENT_STARTED}),
    _S.DELETE_SEGMENT_STARTED: frozenset({_S.DELETE_SEGMENT_STARTED, _S.DELETE_SEGMENT_FINISHED}),
    _S.DELETE_SEGMENT_FINISHED: frozenset({_S.DELETE_SEGMENT_FINISHED}),
}


def is_valid_segment_transition(
    source: RemoteLogSegmentState | None, target: RemoteLogSegmentState
) -> bool:
    """Whether a segment in `source` (None: unknown yet) may move to `target`."""
    return target in _SEGMENT_TRANSITIONS[source]


def is_valid_partition_delete_transition(
    source: RemotePartitionDeleteState | None, target: RemotePartitionDeleteState
) -> bool:
    """Whether a partition deletion in `source` (None: not being deleted) may move to `target`."""
    if source is None:
        return target is RemotePartitionDeleteState.DELETE_PARTITION_MARKED
    return target - source in (0, 1)
