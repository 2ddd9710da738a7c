"""The dashboard and the pipeline behind it: every metric that is drawn is one that is measured."""

import importlib
import json
import re
import sys
from typing import Any

import pytest
import yaml
from aquifer_rpc import semconv
from aquifer_rpc.semconv import InstrumentKind, Metric
from fixtures.members import ROOT

_DASHBOARD: dict[str, Any] = json.loads(
    (ROOT / "deploy/grafana/dashboards/aquifer.json").read_text()
)
_PANELS = [panel for panel in _DASHBOARD["panels"] if panel["type"] != "row"]
# The collector adds the resource; `le` is the border of a histogram's bucket.
_RESOURCE_LABELS = {"service_name", "service_instance_id", "le"}


def _metric_of(expression: str) -> str:
    """The one metric that an expression is about, without labels."""
    [name] = re.findall(r"\baquifer_\w+", re.sub(r"by \([^)]*\)|{[^}]*}", "", expression))
    return str(name)


def _config(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


@pytest.fixture(scope="module")
def series() -> dict[str, set[str]]:
    """Every time series in Prometheus with its labels."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        telemetry = importlib.import_module("generators.telemetry")
    finally:
        sys.path.pop(0)
    found = {}
    for metric in [each for each in vars(semconv).values() if isinstance(each, Metric)]:
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
        known = series[name] | _RESOURCE_LABELS
        grouped = {
            label.strip()
            for labels in re.findall(r"by \(([^)]*)\)", expression)
            for label in labels.split(",")
        }
        selected = set(re.findall(r"[{,](\w+)(?:=~|!=|=)", expression))
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert grouped | selected <= known
        assert shown <= grouped


@pytest.mark.parametrize("panel", _PANELS, ids=lambda panel: panel["title"])
def test_counters_are_drawn_as_rates(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        rated = re.findall(r"rate\((\w+)", target["expr"])
        name = _metric_of(target["expr"])
        assert (name in rated) == name.endswith(("_total", "_bucket", "_count"))


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
