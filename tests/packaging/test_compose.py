"""docker-compose.yml as data: what it names exists, and the processes will understand it."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from aquifer_admin.cli import app
from aquifer_broker.config.broker_config import BrokerConfig
from aquifer_broker.config.properties import load_properties, parse_override
from aquifer_manager.settings import ManagerSettings
from aquifer_metadata.settings import MetadataSettings
from aquifer_rpc.environment import load_settings
from aquifer_standalone.kafka.properties import read_properties
from aquifer_storage.settings import StorageSettings
from fixtures.members import ROOT

_FILE = ROOT / "docker-compose.yml"
_COMPOSE: dict[str, Any] = yaml.safe_load(_FILE.read_text())
_SERVICES: dict[str, dict[str, Any]] = _COMPOSE["services"]
_BROKERS = sorted(name for name in _SERVICES if name.startswith("broker-"))
_SETTINGS = {
    "storage": (StorageSettings, "AQUIFER_STORAGE_"),
    "metadata": (MetadataSettings, "AQUIFER_METADATA_"),
    "manager": (ManagerSettings, "AQUIFER_MANAGER_"),
}
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")

every_service = pytest.mark.parametrize("name", sorted(_SERVICES))


def resolved(value: Any) -> Any:
    """A value with the defaults of its variables, as Compose fills them in."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: match[2] or "", value)
    if isinstance(value, list):
        return [resolved(each) for each in value]
    if isinstance(value, dict):
        return {key: resolved(each) for key, each in value.items()}
    return value


def test_the_file_can_be_read_in_one_sitting() -> None:
    assert len(_FILE.read_text().splitlines()) < 300


@every_service
def test_images_are_pinned(name: str) -> None:
    service = _SERVICES[name]
    image = service["image"]
    if image.startswith("aquifer/"):
        assert "build" in service
        inline = service["build"].get("dockerfile_inline", "")
        bases = re.findall(r"^FROM (\S+)", inline, re.MULTILINE)
    else:
        bases = [image]
    for base in bases:
        tag = base.rpartition(":")[2]
        assert re.search(r"\d+\.\d+|RELEASE\.", tag), base
        assert "/" not in base.split("/")[0] or base.count("/") < 2, base


@every_service
def test_every_service_that_stays_has_a_health_check(name: str) -> None:
    service = _SERVICES[name]
    if service.get("profiles") == ["tools"]:
        assert "restart" not in service
        return
    check = service["healthcheck"]
    assert check["test"][0] == "CMD"
    assert {"interval", "timeout", "retries", "start_period"} <= set(check)
    assert service["restart"] == "unless-stopped"


@every_service
def test_a_health_check_of_ours_asks_the_port_that_is_listened_on(name: str) -> None:
    test = _SERVICES[name].get("healthcheck", {}).get("test", [])
    if "aquifer_rpc.health_check" not in test:
        return
    port = test[-1].rpartition(":")[2]
    if name in _BROKERS:
        assert _broker_config(name).values["aquifer.broker.log.service.listener"].endswith(port)
    else:
        listen = _SERVICES[name]["environment"][f"AQUIFER_{name.upper()}_GRPC__LISTEN"]
        assert listen == f"0.0.0.0:{port}"


@every_service
def test_dependencies_exist_and_are_waited_for_until_they_are_healthy(name: str) -> None:
    for other, condition in _SERVICES[name].get("depends_on", {}).items():
        assert condition == {"condition": "service_healthy"}
        assert "healthcheck" in _SERVICES[other]


def test_brokers_wait_for_metadata_and_never_for_the_cold_path() -> None:
    """SR-36."""
    for name in _BROKERS:
        assert set(_SERVICES[name]["depends_on"]) == {"metadata"}


@pytest.mark.parametrize("name", sorted(_SETTINGS))
def test_the_service_accepts_its_variables(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings_type, prefix = _SETTINGS[name]
    variables = resolved(_SERVICES[name]["environment"])
    assert all(key.startswith(prefix) for key in variables.keys() - {"PGPASSWORD"})
    for key, value in variables.items():
        monkeypatch.setenv(key, value)
    settings = load_settings(settings_type, prefix)
    assert settings.telemetry.otlp_endpoint == "http://otel-collector:4317"


def test_the_admin_command_understands_its_variables() -> None:
    command: Any = typer.main.get_command(app).commands["status"]  # type: ignore[attr-defined]
    known = {variable for each in command.params for variable in _variables_of(each)}
    assert known >= set(_SERVICES["admin"]["environment"])


def _variables_of(parameter: Any) -> list[str]:
    return parameter.envvar if isinstance(parameter.envvar, list) else [str(parameter.envvar)]


def test_every_variable_of_the_file_is_explained_and_no_other() -> None:
    page = (ROOT / "deploy/docker/README.md").read_text()
    assert set(re.findall(r"`(AQUIFER_\w+)`", page)) == {
        name for name, _ in _VARIABLE.findall(_FILE.read_text().replace("$${", ""))
    }


def test_credentials_and_addresses_of_both_ends_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = resolved(_SERVICES["storage"]["environment"])
    minio = resolved(_SERVICES["minio"]["environment"])
    assert storage["AQUIFER_STORAGE_S3__ACCESS_KEY"] == minio["MINIO_ROOT_USER"]
    assert storage["AQUIFER_STORAGE_S3__SECRET_KEY"] == minio["MINIO_ROOT_PASSWORD"]
    postgres = resolved(_SERVICES["postgres"]["environment"])
    dsn = resolved(_SERVICES["metadata"]["environment"])["AQUIFER_METADATA_DATABASE__DSN"]
    assert (
        dsn == f"postgresql://{postgres['POSTGRES_USER']}@postgres:5432/{postgres['POSTGRES_DB']}"
    )
    given = resolved(_SERVICES["metadata"]["environment"])["PGPASSWORD"]
    assert given == postgres["POSTGRES_PASSWORD"]


@every_service
def test_no_secret_is_put_into_an_address(name: str) -> None:
    """Where a password with `@`, `/` or `%` in it would be taken for something else."""
    for key, value in (_SERVICES[name].get("environment") or {}).items():
        assert not re.search(r"\w+://.*\$\{\w+(PASSWORD|KEY)", str(value)), key


@every_service
def test_logs_do_not_fill_the_disk(name: str) -> None:
    """Docker itself keeps every line for ever."""
    service = _SERVICES[name]
    if service.get("profiles") != ["tools"]:
        assert {"max-size", "max-file"} <= service["logging"]["options"].keys()


def test_what_only_observes_cannot_take_the_memory_of_what_holds_data() -> None:
    for name in ("otel-collector", "jaeger", "prometheus", "grafana"):
        assert re.fullmatch(r"\d+m", _SERVICES[name]["mem_limit"])
    collector = yaml.safe_load((ROOT / "deploy/otel-collector/config.yaml").read_text())
    refuses_at = collector["processors"]["memory_limiter"]["limit_mib"]
    assert refuses_at < int(_SERVICES["otel-collector"]["mem_limit"].removesuffix("m"))


@every_service
def test_secrets_come_from_variables_with_a_local_default(name: str) -> None:
    for key, value in (_SERVICES[name].get("environment") or {}).items():
        if re.search(r"PASSWORD|SECRET|ACCESS_KEY|ROOT_USER", key):
            assert _VARIABLE.fullmatch(value), key


@every_service
def test_addresses_name_services_of_the_file(name: str) -> None:
    texts = [str(each) for each in (_SERVICES[name].get("environment") or {}).values()]
    if name in _BROKERS:
        texts += [str(value) for value in _broker_config(name).properties.values()]
    for host, port in re.findall(r"(?<![\w.-])([a-z][\w-]+):(\d{4,5})\b", " ".join(texts)):
        assert host in _SERVICES or host == "localhost", f"{host}:{port}"


@every_service
def test_mounted_files_exist_and_volumes_are_declared(name: str) -> None:
    for mount in _SERVICES[name].get("volumes", []):
        source, target, *mode = mount.split(":")
        if source.startswith("."):
            assert (ROOT / source).exists(), source
            assert mode == ["ro"]
        else:
            assert source in _COMPOSE["volumes"]
        assert target.startswith("/")


def test_every_declared_volume_is_used_by_one_service() -> None:
    mounts = [
        mount.split(":")[0]
        for service in _SERVICES.values()
        for mount in service.get("volumes", [])
        if not mount.startswith(".")
    ]
    assert sorted(mounts) == sorted(_COMPOSE["volumes"])


def test_published_ports_do_not_clash_and_stay_on_this_machine() -> None:
    published = [
        resolved(port) for service in _SERVICES.values() for port in service.get("ports", [])
    ]
    hosts = [text.rsplit(":", 2) for text in published]
    assert {address for address, _, _ in hosts} == {"127.0.0.1"}
    assert len({port for _, port, _ in hosts}) == len(hosts)


@every_service
def test_what_is_built_has_a_dockerfile(name: str) -> None:
    build = _SERVICES[name].get("build")
    if build is not None and "dockerfile" in build:
        assert build["context"] == "."
        assert (ROOT / build["dockerfile"]).is_file()


@pytest.mark.parametrize("name", _BROKERS)
def test_the_broker_knows_every_key_of_its_configuration(name: str) -> None:
    config = _broker_config(name)
    assert config.unknown_keys == ()
    assert config.remote_storage_enabled
    assert config.node_id == int(name.removeprefix("broker-"))


@pytest.mark.parametrize("name", _BROKERS)
def test_clients_reach_a_broker_where_it_says_it_is(name: str) -> None:
    config = _broker_config(name)
    listening = {each.name: each.port for each in config.listeners}
    advertised = {each.name: each for each in config.advertised_listeners}
    assert advertised["INTERNAL"].host == name
    assert advertised["INTERNAL"].port == listening["INTERNAL"]
    [published] = resolved(_SERVICES[name]["ports"])
    _, outside, inside = published.rsplit(":", 2)
    assert int(inside) == listening["EXTERNAL"]
    assert int(outside) == advertised["EXTERNAL"].port
    log_service = config.values["aquifer.broker.log.service.advertised"]
    assert log_service == f"{name}:7400"


@pytest.mark.parametrize("name", _BROKERS)
def test_logs_of_a_broker_are_on_its_volume(name: str) -> None:
    targets = [mount.split(":")[1] for mount in _SERVICES[name]["volumes"]]
    assert [str(path) for path in _broker_config(name).log_dirs] == targets[:1]


def test_apache_kafka_overrides_only_what_its_properties_have() -> None:
    service = _SERVICES["kafka"]
    assert service["profiles"] == ["kafka"]
    command = service["command"][-1]
    [mount] = [each for each in service["volumes"] if each.startswith("./")]
    properties = read_properties(ROOT / mount.split(":")[0])
    overridden = dict(re.findall(r"--override ([\w.]+)=(\S+)", command))
    assert overridden
    assert overridden.keys() <= properties.keys()
    for key in ("storage", "metadata"):
        [endpoint] = [
            value for name, value in overridden.items() if name.endswith(f"{key}.endpoints")
        ]
        listen = _SERVICES[key]["environment"][f"AQUIFER_{key.upper()}_GRPC__LISTEN"]
        assert endpoint == f"{key}:{listen.rpartition(':')[2]}"
    jar = service["build"]["dockerfile_inline"].split()[-2].rpartition("/")[2]
    for role in ("storage", "metadata"):
        assert properties[f"remote.log.{role}.manager.class.path"] == f"/opt/aquifer/{jar}"


def test_the_manager_keeps_its_directory_on_a_volume() -> None:
    manager = _SERVICES["manager"]
    targets = [mount.split(":")[1] for mount in manager["volumes"]]
    assert manager["environment"]["AQUIFER_MANAGER_DATA_DIR"] in targets


def _broker_config(name: str) -> BrokerConfig:
    """What the broker makes of the mounted file and its overrides."""
    service = _SERVICES[name]
    [mount] = [each for each in service["volumes"] if each.split(":")[1] == service["command"][0]]
    properties = load_properties(Path(ROOT / mount.split(":")[0]))
    overrides = [text.removeprefix("--override=") for text in service["command"][1:]]
    properties.update(parse_override(resolved(text)) for text in overrides)
    return BrokerConfig.parse(properties)
