"""What the cyclic garbage collector looks at, and how often."""

import gc
from collections.abc import Iterator

import pytest
from aquifer_rpc.garbage import collect_less_often, spare_what_was_loaded


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """Leaves the collector of the test process as it was."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_what_was_loaded_is_not_looked_at_any_more() -> None:
    spare_what_was_loaded()
    assert gc.get_freeze_count() > 1_000
    assert not any(spared is ValueError for spared in gc.get_objects())


def test_garbage_made_later_is_still_found() -> None:
    spare_what_was_loaded()
    collect_less_often()
    cycle: list[object] = []
    cycle.append(cycle)
    del cycle
    assert gc.collect() >= 1


def test_young_objects_gather_before_they_are_looked_at() -> None:
    _, *older = gc.get_threshold()
    collect_less_often()
    collect_less_often()
    assert gc.get_threshold() == (20_000, *older)
