from dataclasses import replace

from aquifer_broker.config.remote_keys import STORAGE_PREFIX
from aquifer_broker.tiering.announcement import difference
from aquifer_broker.tiering.manager_client import PartitionRole, TieringConfig
from aquifer_broker.tiering.plugin_properties import plugin_properties
from fixtures.tiered_broker import partition_of

_CONFIG = TieringConfig(
    remote_storage_enable=True,
    retention_ms=1,
    retention_bytes=-1,
    local_retention_ms=-2,
    local_retention_bytes=-2,
    remote_log_copy_disable=False,
)


def _role(name: str, *, leader: bool = True, epoch: int = 0) -> PartitionRole:
    return PartitionRole(
        topic_id_partition=partition_of(name), is_leader=leader, leader_epoch=epoch, config=_CONFIG
    )


def test_only_what_changed_is_announced() -> None:
    """SR-15"""
    same, promoted, newer, fresh, gone = (_role(name) for name in "abcde")
    known = {
        each.topic_id_partition: each
        for each in (same, replace(promoted, is_leader=False), newer, gone)
    }
    newer = replace(newer, leader_epoch=1)

    news = difference([same, promoted, newer, fresh], known)

    assert set(news.roles) == {promoted, newer, fresh}
    assert news.stopped == (gone,)
    assert news.configs == {}


def test_settings_that_changed_alone_are_announced_by_topic() -> None:
    before = _role("a")
    after = replace(before, config=replace(_CONFIG, retention_ms=2))

    news = difference([after], {before.topic_id_partition: before})

    assert news.roles == ()
    assert news.configs == {before.topic_id_partition.topic_id: after.config}


def test_plugins_get_their_properties_without_the_prefix_and_without_the_brokers_own() -> None:
    """SR-4"""
    given = {
        "broker.id": "1",
        "remote.log.storage.enable": "true",
        "remote.log.storage.manager.class.name": "a.B",
        "remote.log.storage.endpoints": " h:1 ",
        "remote.log.storage.s3.Bucket": "x",
    }

    assert plugin_properties(given, STORAGE_PREFIX) == {
        "broker.id": "1",
        "endpoints": " h:1 ",
        "s3.Bucket": "x",
    }
