from pathlib import Path

import pytest
from aquifer_core.errors import InvalidConfigurationError
from aquifer_rpc.environment import load_settings, refuse_unknown_variables
from aquifer_rpc.settings import Group, LogFormat, ServiceSettings
from pydantic import SecretStr


class StoreGroup(Group):
    bucket: str = "segments"
    secret: SecretStr | None = None


class Settings(ServiceSettings):
    store: StoreGroup = StoreGroup()
    maybe: StoreGroup | None = None
    labels: dict[str, str] = {}  # noqa: RUF012 - pydantic copies defaults


PREFIX = "AQUIFER_UNIT_"


def test_values_come_from_the_environment_by_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AQUIFER_UNIT_GRPC__LISTEN", "127.0.0.1:9401")
    monkeypatch.setenv("AQUIFER_UNIT_GRPC__TLS__CERTIFICATE_FILE", "/c.pem")
    monkeypatch.setenv("AQUIFER_UNIT_GRPC__TLS__KEY_FILE", "/k.pem")
    monkeypatch.setenv("AQUIFER_UNIT_LOG__FORMAT", "json")
    monkeypatch.setenv("AQUIFER_UNIT_MAYBE__BUCKET", "other")
    monkeypatch.setenv("AQUIFER_UNIT_LABELS__ZONE", "a")

    settings = load_settings(Settings, PREFIX)

    assert settings.grpc.listen == "127.0.0.1:9401"
    assert settings.grpc.tls is not None
    assert settings.grpc.tls.key_file == Path("/k.pem")
    assert settings.log.format is LogFormat.JSON
    assert settings.maybe == StoreGroup(bucket="other")
    assert {key.lower(): value for key, value in settings.labels.items()} == {"zone": "a"}


def test_without_variables_the_defaults_hold() -> None:
    settings = load_settings(Settings, PREFIX)

    assert settings.telemetry.otlp_endpoint is None
    assert settings.grpc.reuse_port is False


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("AQUIFER_UNIT_GRPC__LISTNE", "AQUIFER_UNIT_GRPC__LISTEN"),
        ("AQUIFER_UNIT_STORE_BUCKET", "AQUIFER_UNIT_STORE__BUCKET"),
        ("AQUIFER_UNIT_LOGS__LEVEL", "AQUIFER_UNIT_LOG__LEVEL"),
    ],
)
def test_a_misspelt_variable_is_refused_with_the_one_that_was_meant(name: str, meant: str) -> None:
    with pytest.raises(InvalidConfigurationError) as refused:
        refuse_unknown_variables(Settings, PREFIX, {name: "x"})

    assert refused.value.message == f"{name} is not a setting; did you mean {meant}?"
    assert refused.value.metadata == {"key": name}


def test_variables_of_others_are_left_alone() -> None:
    others = {"AQUIFER_OTHER_X": "", "PATH": "", "AQUIFER_UNIT_LABELS__ANYTHING": ""}

    refuse_unknown_variables(Settings, PREFIX, others)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AQUIFER_UNIT_GRPC__MAX_MESSAGE_BYTES", "-1"),
        ("AQUIFER_UNIT_TELEMETRY__SAMPLE_RATIO", "1.5"),
        ("AQUIFER_UNIT_LOG__LEVEL", "loud"),
    ],
)
def test_a_refused_value_names_its_variable_in_one_line(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)

    with pytest.raises(InvalidConfigurationError) as refused:
        load_settings(Settings, PREFIX)

    assert refused.value.message.startswith(f"{name}: ")
    assert "\n" not in refused.value.message


def test_a_secret_does_not_show_in_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AQUIFER_UNIT_STORE", "{not json hunter2")

    with pytest.raises(InvalidConfigurationError) as refused:
        load_settings(Settings, PREFIX)

    assert "hunter2" not in refused.value.message
