"""DeleteRecords, OffsetForLeaderEpoch and DescribeLogDirs: what concerns local logs."""

import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import structlog
from aquifer_core.errors import AquiferError
from kio.schema.errors import ErrorCode

from aquifer_broker.handlers.error_codes import error_code_of
from aquifer_broker.handlers.services import BrokerServices
from aquifer_broker.protocol.dispatch import Answer, Call

__all__ = ["DeleteRecordsHandler", "DescribeLogDirsHandler", "OffsetForLeaderEpochHandler"]

logger = structlog.get_logger(__name__)

_TO_HIGH_WATERMARK = -1


class DeleteRecordsHandler:
    """Answers DeleteRecords v0 to v2 (K-3.10, SR-25)."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    async def __call__(self, call: Call) -> Answer:
        """Raises log starts; remote data is cleaned later, without anybody waiting for it."""
        topics = []
        for requested in call.body.topics:
            partitions = [
                await self._partition(requested.name, each.partition_index, each.offset)
                for each in requested.partitions
            ]
            topics.append({"name": requested.name, "partitions": partitions})
        return {"topics": topics}

    async def _partition(self, topic: str, partition: int, offset: int) -> dict[str, Any]:
        low_watermark = -1
        hosted = self._services.partitions.leader(topic, partition)
        if isinstance(hosted, ErrorCode):
            error = hosted
        else:
            log = hosted.log
            target = log.high_watermark if offset == _TO_HIGH_WATERMARK else offset
            try:
                error = await self._raise_start(hosted, target)
                low_watermark = log.log_start_offset if error is ErrorCode.none else -1
            except AquiferError as failure:
                error = error_code_of(failure, unavailable=ErrorCode.kafka_storage_error)
            except Exception:
                logger.exception("delete_records_failed", partition=str(hosted.topic_id_partition))
                error = ErrorCode.unknown_server_error
        return {
            "partition_index": partition,
            "low_watermark": low_watermark,
            "error_code": error,
        }

    async def _raise_start(self, hosted: Any, offset: int) -> ErrorCode:
        log = hosted.log
        if log.config.compact and not log.config.delete:
            return ErrorCode.policy_violation
        if offset < 0 or offset > log.high_watermark:
            return ErrorCode.offset_out_of_range
        if log.tiering_enabled and offset > max(log.recovery_point, log.log_start_offset):
            # The log start is remembered elsewhere. A log that a power cut left ending below it would fill up to it with
            # records that count as deleted.
            await log.flush()
        if await log.increase_log_start_offset(offset, reason="DeleteRecords"):
            remote = self._services.remote
            if remote is not None and log.tiering_enabled:
                remote.log_start_raised(log, hosted.leader_epoch)
        return ErrorCode.none


class OffsetForLeaderEpochHandler:
    """Answers OffsetForLeaderEpoch v2 to v4 from the leader epoch cache."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    async def __call__(self, call: Call) -> Answer:
        """Where an epoch ends."""
        return {
            "topics": [
                {
                    "topic": requested.topic,
                    "partitions": [
                        self._partition(requested.topic, each) for each in requested.partitions
                    ],
                }
                for requested in call.body.topics
            ]
        }

    def _partition(self, topic: str, requested: Any) -> dict[str, Any]:
        hosted = self._services.partitions.leader(
            topic, requested.partition, requested.current_leader_epoch
        )
        answer: dict[str, Any] = {"partition": requested.partition}
        if isinstance(hosted, ErrorCode):
            return {**answer, "error_code": hosted}
        if requested.leader_epoch == hosted.leader_epoch:
            epoch, end_offset = hosted.leader_epoch, hosted.log.log_end_offset
        else:
            epoch, end_offset = hosted.log.end_offset_for_epoch(requested.leader_epoch)
        return {
            **answer,
            "error_code": ErrorCode.none,
            "leader_epoch": epoch,
            "end_offset": end_offset,
        }


class DescribeLogDirsHandler:
    """Answers DescribeLogDirs v1 to v4."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    async def __call__(self, call: Call) -> Answer:
        """Sizes of this broker's logs, by directory."""
        wanted = _wanted(call.body.topics)
        by_dir: dict[Path, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
        for log in self._services.logs.logs():
            topic, partition = log.topic_id_partition.topic, log.topic_id_partition.partition
            if wanted is None or partition in wanted.get(topic, ()):
                by_dir[log.directory.parent][topic].append(
                    {
                        "partition_index": partition,
                        "partition_size": log.size_bytes,
                        "offset_lag": 0,
                        "is_future_key": False,
                    }
                )
        results = [
            _log_dir(path, online, by_dir[path])
            for path, _, online in self._services.logs.log_dir_states()
        ]
        return {"error_code": ErrorCode.none, "results": results}


def _wanted(topics: Any) -> dict[str, set[int]] | None:
    return None if topics is None else {each.topic: set(each.partitions) for each in topics}


def _log_dir(path: Path, online: bool, topics: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    usage = _usage(path) if online else None
    answer: dict[str, Any] = {
        "error_code": ErrorCode.none if usage is not None else ErrorCode.kafka_storage_error,
        "log_dir": str(path),
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    }
    if usage is not None:
        answer["total_bytes"], answer["usable_bytes"] = usage
    return answer


def _usage(path: Path) -> tuple[int, int] | None:
    """Bytes in all and free; None: the dir failed, which nobody has found out yet by using it."""
    try:
        usage = shutil.disk_usage(path)
        return usage.total, usage.free
    except OSError as error:
        logger.warning("log_dir_unreadable", log_dir=str(path), error=str(error))
        return None
