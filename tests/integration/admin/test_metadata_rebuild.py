"""`aquifer metadata rebuild`: the database is lost, the bucket is all that is left (T59)."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import builders
import psycopg
import pytest
from aquifer_client import GrpcRemoteLogMetadataManager, GrpcRemoteStorageManager
from aquifer_core.ids import TopicIdPartition
from aquifer_core.segment import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate
from aquifer_core.state import RemoteLogSegmentState
from aquifer_metadata.app import running_server as running_metadata
from aquifer_rpc.settings import GrpcServerSettings
from aquifer_storage.app import running_server as running_storage
from aquifer_storage.settings import S3Settings, StorageSettings
from contract.remote_storage_manager import joined
from fixtures.admin_command import AdminCommand
from fixtures.metadata_service import metadata_settings
from fixtures.object_store import S3Endpoint
from psycopg import sql
from pydantic import SecretStr

PARTITIONS = [
    builders.topic_id_partition(topic, number) for topic in ("a", "b") for number in (0, 1)
]
SEGMENTS_EACH = 3


@dataclass(kw_only=True)
class Suite:
    """Storage on a bucket, and metadata on a database that can be lost."""

    storage: GrpcRemoteStorageManager
    storage_address: str
    dsn: str
    template: str
    logs: dict[str, bytes]

    @asynccontextmanager
    async def metadata(self) -> AsyncIterator[tuple[GrpcRemoteLogMetadataManager, AdminCommand]]:
        """The metadata service on the database as it is now, and the command."""
        async with running_metadata(metadata_settings(self.dsn)) as server:
            address = f"127.0.0.1:{server.port}"
            manager = GrpcRemoteLogMetadataManager()
            await manager.configure({"endpoints": address})
            try:
                yield manager, AdminCommand(metadata=address, storage=self.storage_address)
            finally:
                await manager.close()

    async def copy(
        self,
        metadata: GrpcRemoteLogMetadataManager,
        partition: TopicIdPartition,
        start: int,
        *,
        finish: bool = True,
    ) -> RemoteLogSegmentMetadata:
        """Copy a segment as a manager does."""
        built = builders.segment(partition=partition, start_offset=start, leader_epoch=start // 100)
        await metadata.add_remote_log_segment_metadata(built.metadata)
        result = await self.storage.copy_log_segment_data(built.metadata, built.data)
        self.logs[str(built.metadata.segment_id.id)] = built.log
        if finish:
            await metadata.update_remote_log_segment_metadata(
                RemoteLogSegmentMetadataUpdate(
                    segment_id=built.metadata.segment_id,
                    event_timestamp_ms=built.metadata.event_timestamp_ms,
                    custom_metadata=result.custom_metadata,
                    state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
                    broker_id=built.metadata.broker_id,
                )
            )
        return built.metadata

    def lose_database(self) -> None:
        """Drop the database and make an empty one of its name."""
        parts = urlsplit(self.dsn)
        name = sql.Identifier(parts.path.lstrip("/"))
        server = parts._replace(path="/postgres").geturl()
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
            connection.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                    name, sql.Identifier(self.template)
                )
            )


@pytest.fixture
async def suite(
    s3_server: S3Endpoint, bucket: str, metadata_dsn: str, metadata_template: str
) -> AsyncIterator[Suite]:
    settings = StorageSettings(
        grpc=GrpcServerSettings(drain_grace_s=0.2),
        key_prefix="cluster/",
        s3=S3Settings(
            endpoint=s3_server.endpoint,
            bucket=bucket,
            access_key=s3_server.access_key,
            secret_key=SecretStr(s3_server.secret_key),
        ),
    )
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(running_storage(settings))
        address = f"127.0.0.1:{server.port}"
        storage = GrpcRemoteStorageManager()
        await storage.configure({"endpoints": address})
        stack.push_async_callback(storage.close)
        yield Suite(
            storage=storage,
            storage_address=address,
            dsn=metadata_dsn,
            template=metadata_template,
            logs={},
        )


async def rows_of(metadata: GrpcRemoteLogMetadataManager) -> list[RemoteLogSegmentMetadata]:
    """All that metadata knows of the test's partitions."""
    return [
        row
        for partition in PARTITIONS
        async for row in metadata.list_remote_log_segments(partition)
    ]


async def test_metadata_is_rebuilt_from_the_bucket_alone_and_everything_reads_back(
    suite: Suite,
) -> None:
    async with suite.metadata() as (metadata, _):
        for partition in PARTITIONS:
            start = 0
            for _ in range(SEGMENTS_EACH):
                start = (await suite.copy(metadata, partition, start)).end_offset + 1
        before = await rows_of(metadata)
    assert len(before) == len(PARTITIONS) * SEGMENTS_EACH
    suite.lose_database()

    async with suite.metadata() as (metadata, admin):
        assert await rows_of(metadata) == []
        dry = await admin.json("metadata", "rebuild")
        assert (dry["applied"], dry["add"], dry["known"]) == (False, len(before), 0)
        assert await rows_of(metadata) == []

        only_a = await admin.json("metadata", "rebuild", "--topic", "a", "--apply")
        assert (only_a["add"], only_a["stored_segments"]) == (len(before) // 2, len(before) // 2)
        done = await admin.json("metadata", "rebuild", "--apply")
        assert (done["add"], done["known"]) == (len(before) // 2, len(before) // 2)
        assert await rows_of(metadata) == before

        for row in before:
            epoch = max(row.segment_leader_epochs)
            tip = row.topic_id_partition
            found = await metadata.remote_log_segment_metadata(tip, epoch, row.end_offset)
            assert found == row
            log = await joined(suite.storage.fetch_log_segment(row, 0))
            assert log == suite.logs[str(row.segment_id.id)]
        again = await admin.json("metadata", "rebuild", "--apply")
        assert (again["add"], again["known"]) == (0, len(before))


async def test_a_copy_that_was_never_committed_comes_back_once(suite: Suite) -> None:
    """Two whole copies of one range are in the bucket; one of them is enough."""
    async with suite.metadata() as (metadata, _):
        await suite.copy(metadata, PARTITIONS[0], 0, finish=False)
        await suite.copy(metadata, PARTITIONS[0], 0)
    suite.lose_database()
    async with suite.metadata() as (metadata, admin):
        done = await admin.json("metadata", "rebuild", "--apply")
        assert (done["add"], done["superseded"]) == (1, 1)
        (row,) = await rows_of(metadata)
        assert row.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED


async def test_a_damaged_manifest_is_told_and_hides_nothing_else(
    suite: Suite, s3_server: S3Endpoint, bucket: str
) -> None:
    async with suite.metadata() as (metadata, _):
        first = await suite.copy(metadata, PARTITIONS[0], 0)
        await suite.copy(metadata, PARTITIONS[0], first.end_offset + 1)
    suite.lose_database()
    client: Any = s3_server.client()
    key = (await suite.storage.describe_segment(first)).object_keys[-1]
    client.fput_object(bucket, key, __file__)
    async with suite.metadata() as (metadata, admin):
        outcome = await admin.run("metadata", "rebuild", "--apply", "--json")
        assert outcome.code == 1
        assert outcome.document["add"] == 1
        assert key in outcome.document["damage"]
        assert len(await rows_of(metadata)) == 1


async def test_what_an_interrupted_rebuild_left_is_finished_by_the_next(suite: Suite) -> None:
    async with suite.metadata() as (metadata, admin):
        copied = await suite.copy(metadata, PARTITIONS[0], 0)
        (before,) = await rows_of(metadata)
    suite.lose_database()
    async with suite.metadata() as (metadata, admin):
        await metadata.add_remote_log_segment_metadata(replace(copied, custom_metadata=None))
        done = await admin.json("metadata", "rebuild", "--apply")
        assert (done["add"], done["finish"]) == (0, 1)
        assert await rows_of(metadata) == [before]
