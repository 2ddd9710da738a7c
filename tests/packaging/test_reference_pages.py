"""What the generated reference is made from says something about everything."""

import importlib
import sys
from typing import Any

import pytest
from aquifer_broker.config.broker_keys import BROKER_DEFINITIONS
from aquifer_broker.config.topic_config import TOPIC_DEFINITIONS
from aquifer_rpc import semconv
from aquifer_rpc.semconv import Attribute, InstrumentKind, Metric, Span
from fixtures.members import ROOT


def _generator(name: str) -> Any:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        return importlib.import_module(f"generators.{name}")
    finally:
        sys.path.pop(0)


configuration, telemetry = _generator("configuration"), _generator("telemetry")


@pytest.mark.parametrize("service", configuration.SERVICES)
def test_every_setting_of_a_service_is_explained(service: str) -> None:
    settings_type, prefix = configuration.service_settings(service)
    assert prefix == f"AQUIFER_{service.upper()}_"
    found = list(configuration.variables(settings_type, prefix))
    names = [name for name, _, _ in found]
    assert len(set(names)) == len(names)
    for name, field, _ in found:
        assert field.description, name
        assert field.description.endswith("."), name


def test_every_key_of_the_broker_is_explained() -> None:
    for definition in (*BROKER_DEFINITIONS, *TOPIC_DEFINITIONS.values()):
        assert definition.doc.endswith((".", ")")), definition.name


def test_the_configuration_page_has_every_setting_and_is_always_the_same() -> None:
    page = configuration.configuration_page()
    assert page == configuration.configuration_page()
    for key in ("AQUIFER_STORAGE_S3__BUCKET", "AQUIFER_METADATA_DATABASE__DSN"):
        assert page.count(f"| `{key}` |") == 1
    for definition in BROKER_DEFINITIONS:
        assert f"| `{definition.name}`" in page


def test_no_page_shows_a_secret() -> None:
    page = configuration.configuration_page()
    for line in page.splitlines():
        if "secret text" in line:
            assert "| for local use only |" in line or "| unset |" in line


def test_the_telemetry_page_has_every_declaration() -> None:
    page = telemetry.telemetry_page()
    for value in vars(semconv).values():
        if isinstance(value, Span | Metric):
            assert f"`{value.name}`" in page
        elif isinstance(value, Attribute):
            assert f"| `{value.key}` |" in page


@pytest.mark.parametrize(
    ("name", "unit", "kind", "expected"),
    [
        ("a.rpc.duration", "s", InstrumentKind.HISTOGRAM, "a_rpc_duration_seconds"),
        ("a.seconds_since", "s", InstrumentKind.GAUGE, "a_seconds_since"),
        ("a.copy.bytes", "By", InstrumentKind.COUNTER, "a_copy_bytes_total"),
        ("a.lag.age", "ms", InstrumentKind.GAUGE, "a_lag_age_milliseconds"),
        ("a.up", "1", InstrumentKind.GAUGE, "a_up_ratio"),
        ("a.retries", "{retry}", InstrumentKind.COUNTER, "a_retries_total"),
    ],
)
def test_names_in_prometheus_are_those_of_the_collector(
    name: str, unit: str, kind: InstrumentKind, expected: str
) -> None:
    metric = Metric(name=name, unit=unit, kind=kind, doc="")
    assert telemetry.prometheus_name(metric) == expected
