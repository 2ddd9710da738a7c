"""The peer of the plugin: Aiven's tiered storage for Apache Kafka with its S3 back end, on a cluster of its own.

No registry has its jars under the names its build gives them, so they are made from a checkout of release 1.0.0, once:

    AQUIFER_BENCH_PEER=CHECKOUT python -m bench kafka

Nothing of it is shipped or copied; it is Apache-2.0, and only run for measuring.
"""

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from aquifer_standalone.kafka.cluster import KafkaCluster, KafkaSettings
from aquifer_standalone.kafka.installation import (
    CHECKOUT,
    KafkaUnavailableError,
    locked,
    maven,
)
from aquifer_standalone.readiness import S3Target

_CHECKOUT_VARIABLE: Final = "AQUIFER_BENCH_PEER"
_POM: Final = Path(__file__).with_name("kafka_peer.pom.xml")
_JARS: Final = CHECKOUT / "build" / "kafka" / "peer-1.0.0"
_BUCKET: Final = "peer"
_MIB: Final = 1024 * 1024


async def peer_jars() -> Path:
    """The folder with its jars, made with Maven the first time; safe when several processes ask at once.

    Raises:
        KafkaUnavailableError: there is no checkout to make them from, or Maven failed.
    """
    async with locked(_JARS.with_name(f"{_JARS.name}.lock")):
        if not _JARS.is_dir():
            await _build()
    return _JARS


async def _build() -> None:
    source = _checkout()
    with tempfile.TemporaryDirectory(dir=_JARS.parent, prefix="peer-") as folder:
        work = Path(folder)
        await maven(_POM, "package", f"-Dpeer.source={source}", f"-Dpeer.work={work}")
        (work / "jars").rename(_JARS)


def _checkout() -> Path:
    named = os.environ.get(_CHECKOUT_VARIABLE)
    if not named:
        raise KafkaUnavailableError(
            f"no {_JARS.relative_to(CHECKOUT)}, and {_CHECKOUT_VARIABLE} names no checkout of it"
        )
    source = Path(named).resolve()
    if not (source / "storage" / "s3" / "src" / "main" / "java").is_dir():
        raise KafkaUnavailableError(f"{_CHECKOUT_VARIABLE} names no checkout of it: {source}")
    return source


def peer_cluster(settings: KafkaSettings, target: S3Target, root: Path, jars: Path) -> KafkaCluster:
    """A cluster as `settings` say, but with the peer in place of the plugin, and a bucket of its own."""
    client = target.client()
    if not client.bucket_exists(_BUCKET):
        client.make_bucket(_BUCKET)
    chunks = root / "chunks"
    chunks.mkdir(parents=True)
    own = peer_properties(jars, target, chunks)
    properties = {**settings.properties, **own}
    return KafkaCluster(replace(settings, plugin=None, properties=properties), root)


def peer_properties(jars: Path, target: S3Target, chunks: Path) -> dict[str, str]:
    """What its documentation and its demonstration for S3 set, and the defaults for all else.

    Metadata is in Kafka's own topic; neither compression nor encryption, as with the plugin.
    """
    topic_based = (
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
    )
    peer = "io.aiven.kafka.tieredstorage"
    storage = {
        "chunk.size": str(4 * _MIB),
        "fetch.chunk.cache.class": f"{peer}.fetch.cache.DiskChunkCache",
        "fetch.chunk.cache.path": str(chunks),
        "fetch.chunk.cache.size": str(1024 * _MIB),
        "fetch.chunk.cache.prefetch.max.size": str(16 * _MIB),
        "fetch.chunk.cache.retention.ms": "600000",
        "custom.metadata.fields.include": "REMOTE_SIZE",
        "storage.backend.class": f"{peer}.storage.s3.S3Storage",
        "storage.s3.endpoint.url": f"http://{target.endpoint}",
        "storage.s3.bucket.name": _BUCKET,
        "storage.s3.region": target.region,
        "storage.s3.path.style.access.enabled": "true",
        "storage.s3.multipart.upload.part.size": str(25 * _MIB),
        "storage.aws.access.key.id": target.access_key,
        "storage.aws.secret.access.key": target.secret_key,
    }
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": f"{peer}.RemoteStorageManager",
        "remote.log.storage.manager.class.path": f"{jars}/*",
        "remote.log.metadata.manager.class.name": topic_based,
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        **{f"rsm.config.{key}": value for key, value in storage.items()},
    }
