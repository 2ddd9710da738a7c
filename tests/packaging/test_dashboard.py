"""The dashboard, the alerts and the pipeline behind them: what they name is measured, and what is measured is drawn."""

import importlib
import json
import re
import sys
from typing import Any

import pytest
import yaml
from aquifer_rpc.semconv import InstrumentKind, Metric
from fixtures.members import ROOT

_DASHBOARD: dict[str, Any] = json.loads(
    (ROOT / "deploy/grafana/dashboards/aquifer.json").read_text()
)
_PANELS = [panel for panel in _DASHBOARD["panels"] if panel["type"] != "row"]
# The collector adds the resource; `le` is the border of a histogram's bucket.
_RESOURCE_LABELS = {"service_name", "service_instance_id", "le"}


def _config(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def _metrics_of(expression: str) -> list[str]:
    """The metrics that an expression names, without labels."""
    bare = re.sub(r"(?:by|on) \([^)]*\)|{[^}]*}", "", expression)
    return [str(name) for name in re.findall(r"\b(?:aquifer|db_client)_\w+", bare)]


def _metric_of(expression: str) -> str:
    """The one metric that an expression is about."""
    [name] = _metrics_of(expression)
    return name


def _labels_of(expression: str) -> set[str]:
    """Labels by which an expression groups or selects."""
    grouped = {
        label.strip()
        for labels in re.findall(r"(?:by|on) \(([^)]*)\)", expression)
        for label in labels.split(",")
    }
    return grouped | set(re.findall(r"[{,](\w+)(?:=~|!=|=)", expression))


@pytest.fixture(scope="module")
def series() -> dict[str, set[str]]:
    """Every time series in Prometheus with its labels."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        telemetry = importlib.import_module("generators.telemetry")
    finally:
        sys.path.pop(0)
    found = {}
    for metric in telemetry.declared(Metric):
        name = telemetry.prometheus_name(metric)
        labels = {each.key.replace(".", "_") for each in metric.attributes}
        histogram = metric.kind is InstrumentKind.HISTOGRAM
        for suffix in ("_bucket", "_sum", "_count") if histogram else ("",):
            found[name + suffix] = labels
    return found


@pytest.mark.parametrize("panel", _PANELS, ids=lambda panel: panel["title"])
def test_a_panel_draws_what_is_measured(panel: dict[str, Any], series: dict[str, set[str]]) -> None:
    assert panel["targets"]
    assert panel["description"].endswith(".")
    for target in panel["targets"]:
        expression = target["expr"]
        name = _metric_of(expression)
        assert name in series
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert _labels_of(expression) <= series[name] | _RESOURCE_LABELS
        assert shown <= _labels_of(expression)


def test_every_metric_is_drawn(series: dict[str, set[str]]) -> None:
    drawn = {_metric_of(target["expr"]) for panel in _PANELS for target in panel["targets"]}
    parts = re.compile("_(bucket|count|sum)$")
    assert {parts.sub("", name) for name in drawn} >= {parts.sub("", name) for name in series}


@pytest.mark.parametrize("panel", _PANELS, ids=lambda panel: panel["title"])
def test_counters_are_drawn_as_rates(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        rated = re.findall(r"rate\((\w+)", target["expr"])
        name = _metric_of(target["expr"])
        assert (name in rated) == name.endswith(("_total", "_bucket", "_seconds_count"))


_RULES = [
    rule for group in _config("deploy/prometheus/alerts.yml")["groups"] for rule in group["rules"]
]


@pytest.mark.parametrize("rule", _RULES, ids=lambda rule: rule["alert"])
def test_an_alert_is_about_what_is_measured(
    rule: dict[str, Any], series: dict[str, set[str]]
) -> None:
    names = _metrics_of(rule["expr"])
    assert names
    for name in names:
        assert name in series
        assert _labels_of(rule["expr"]) <= series[name] | _RESOURCE_LABELS
    for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
        assert label in _labels_of(rule["expr"])
    assert rule["expr"].count("(") == rule["expr"].count(")")
    assert rule["labels"]["severity"] in {"critical", "warning"}


def test_operators_are_told_what_to_do_about_every_alert_and_of_no_other() -> None:
    page = (ROOT / "docs/operations.md").read_text()
    assert re.findall(r"^\| `(Aquifer\w+)` \|", page, re.MULTILINE) == [
        rule["alert"] for rule in _RULES
    ]


def test_prometheus_reads_its_rules_from_what_is_mounted() -> None:
    mounts = _config("docker-compose.yml")["services"]["prometheus"]["volumes"]
    assert "./deploy/prometheus:/etc/prometheus:ro" in mounts
    for name in _config("deploy/prometheus/prometheus.yml")["rule_files"]:
        assert (ROOT / "deploy/prometheus" / name).is_file()


def test_panels_have_their_own_ids_and_places() -> None:
    panels = _DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        taken |= cells


def test_the_data_sources_of_the_dashboard_are_provisioned() -> None:
    sources = _config("deploy/grafana/provisioning/datasources/datasources.yaml")["datasources"]
    by_uid = {source["uid"]: source for source in sources}
    for panel in _PANELS:
        uid = panel["datasource"]["uid"]
        assert by_uid[uid]["type"] == panel["datasource"]["type"]
    [provider] = _config("deploy/grafana/provisioning/dashboards/dashboards.yaml")["providers"]
    mounts = _config("docker-compose.yml")["services"]["grafana"]["volumes"]
    targets = {mount.split(":")[1]: mount.split(":")[0] for mount in mounts}
    assert targets[provider["options"]["path"]] == "./deploy/grafana/dashboards"


def test_metrics_and_traces_find_their_way_between_the_containers() -> None:
    services = _config("docker-compose.yml")["services"]
    collector = _config("deploy/otel-collector/config.yaml")
    [job] = _config("deploy/prometheus/prometheus.yml")["scrape_configs"]
    [target] = job["static_configs"][0]["targets"]
    host, _, port = target.partition(":")
    assert host in services
    assert collector["exporters"]["prometheus"]["endpoint"].endswith(f":{port}")
    traces = collector["exporters"]["otlp/jaeger"]["endpoint"].partition(":")[0]
    assert traces in services
    receiver = collector["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
    assert receiver.endswith(":4317")
    health = collector["extensions"]["health_check"]["endpoint"]
    assert health.rpartition(":")[2] in str(services["otel-collector"]["healthcheck"]["test"])
