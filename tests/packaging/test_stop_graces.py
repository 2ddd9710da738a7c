"""Whoever stops a process waits longer than it takes to drain: killed in between, it leaves half of a copy behind."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from aquifer_manager.settings import ManagerSettings
from aquifer_metadata.settings import MetadataSettings
from aquifer_rpc.service import own_stop_s
from aquifer_rpc.settings import ServiceSettings
from aquifer_standalone import background
from aquifer_standalone.ports import release_all
from aquifer_standalone.stack import Stack, StackSettings
from aquifer_storage.settings import StorageSettings
from fixtures.members import ROOT

_SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())[
    "services"
]


def needed_s(name: str) -> float:
    """How long a process of the suite may take to stop by itself, as it is set up by default."""
    if name == "manager":
        settings = ManagerSettings()
        return own_stop_s(settings) + settings.stop_grace_ms / 1000
    # A broker drains the connections of Kafka clients besides its log service.
    of_service: dict[str, type[ServiceSettings]] = {
        "storage": StorageSettings,
        "metadata": MetadataSettings,
    }
    return own_stop_s(of_service.get(name, ServiceSettings)()) + (10 if "broker" in name else 0)


@pytest.mark.parametrize("name", ["storage", "metadata", "manager", "broker-1"])
def test_containers_are_not_killed_while_they_drain(name: str) -> None:
    assert int(_SERVICES[name]["stop_grace_period"].removesuffix("s")) > needed_s(name)


def test_child_processes_are_not_killed_while_they_drain(tmp_path: Path) -> None:
    stack = Stack(StackSettings(data_dir=tmp_path, brokers=1))
    specs = [stack.supervisor.child(each.name).spec for each in stack.supervisor.status()]
    for spec in specs:
        release_all(spec.ports)
    graces = {spec.name: spec.stop_grace_s for spec in specs}
    names = ("storage", "metadata", "manager", "broker-1")
    for name in names:
        assert graces[name] > needed_s(name)
    # Brokers stop first, then the manager, then storage and metadata, then PostgreSQL and the store.
    longest_s = graces["broker-1"] + graces["manager"] + graces["storage"] + graces["postgres"]
    assert longest_s < background.STOP_S
