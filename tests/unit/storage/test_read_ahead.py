"""Read-ahead: only for sequential readers, growing, bounded."""

from aquifer_core.ids import KafkaUuid
from aquifer_storage.domain.read_ahead import ReadAhead

SEGMENT = KafkaUuid(b"s" * 16)
OTHER = KafkaUuid(b"o" * 16)


def test_a_sequential_reader_is_read_ahead_further_and_further() -> None:
    ahead = ReadAhead(40)
    assert [ahead.window_bytes(SEGMENT, number, 4) for number in range(7)] == [
        0, 4, 16, 40, 40, 40, 40
    ]  # fmt: skip


def test_a_chunk_asked_for_again_changes_nothing() -> None:
    ahead = ReadAhead(40)
    windows = [ahead.window_bytes(SEGMENT, number, 4) for number in (0, 0, 0, 1, 1, 2)]
    assert windows == [0, 0, 0, 4, 4, 16]


def test_random_reads_are_not_read_ahead() -> None:
    ahead = ReadAhead(40)
    numbers = [(SEGMENT, 9), (SEGMENT, 3), (OTHER, 4), (SEGMENT, 7), (SEGMENT, 1)]
    assert [ahead.window_bytes(segment, number, 4) for segment, number in numbers] == [0] * 5


def test_readers_of_one_segment_do_not_disturb_each_other() -> None:
    ahead = ReadAhead(40)
    assert [ahead.window_bytes(SEGMENT, number, 4) for number in (0, 50, 1, 51, 2, 52)] == [
        0, 0, 4, 4, 16, 16
    ]  # fmt: skip


def test_a_reader_that_comes_from_the_segment_before_keeps_its_pace() -> None:
    ahead = ReadAhead(40)
    ahead.expect(SEGMENT, 0, 8)
    assert ahead.pace_bytes(SEGMENT, 0) == 8
    assert ahead.window_bytes(SEGMENT, 0, 4) == 32


def test_read_ahead_can_be_turned_off() -> None:
    ahead = ReadAhead(0)
    assert [ahead.window_bytes(SEGMENT, number, 4) for number in range(3)] == [0, 0, 0]
