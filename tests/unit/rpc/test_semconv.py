import re

from aquifer_rpc import semconv
from aquifer_rpc.semconv import Attribute, Metric, Span

DECLARED = list(vars(semconv).values())


def test_every_name_is_declared_once() -> None:
    keys = [value.key for value in DECLARED if isinstance(value, Attribute)]
    names = [value.name for value in DECLARED if isinstance(value, Metric)]

    assert len(keys) == len(set(keys)) > 10
    assert len(names) == len(set(names)) > 5


def test_our_names_have_our_prefix_and_one_style() -> None:
    for value in DECLARED:
        if isinstance(value, Metric):
            assert re.fullmatch(r"aquifer(\.[a-z_]+)+", value.name)
        if isinstance(value, Attribute):
            assert re.fullmatch(r"(aquifer|rpc|network)(\.[a-z_]+)+", value.key)


def test_everything_declared_says_what_it_is() -> None:
    for value in DECLARED:
        if isinstance(value, Attribute | Metric | Span):
            assert value.doc.endswith(".")
