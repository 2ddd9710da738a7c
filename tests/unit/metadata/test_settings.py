"""Settings that contradict one another stop the start with one line."""

import pytest
from aquifer_core.errors import InvalidConfigurationError
from aquifer_metadata.settings import PREFIX, ClusterSettings, MetadataSettings
from aquifer_rpc.environment import load_settings

DEFAULT = f"{PREFIX}CLUSTER__DEFAULT_REPLICATION_FACTOR"


def test_a_topic_has_one_replica_as_long_as_brokers_do_not_replicate() -> None:
    assert ClusterSettings().max_replication_factor == 1
    assert ClusterSettings().default_replication_factor == 1


def test_a_default_that_every_creation_would_be_refused_for_stops_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(DEFAULT, "3")
    with pytest.raises(InvalidConfigurationError) as refused:
        load_settings(MetadataSettings, PREFIX)
    assert "default_replication_factor 3 is above max_replication_factor 1" in refused.value.message
    assert "do not replicate yet; set it to 1" in refused.value.message
    assert "\n" not in refused.value.message
