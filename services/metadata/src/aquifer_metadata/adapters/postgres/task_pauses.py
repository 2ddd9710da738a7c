"""What operators have paused. A topic as a whole has the zero id and the partition -1."""

import uuid
from collections.abc import AsyncIterator, Collection
from typing import Any, Final

from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_core.ports import Clock
from aquifer_core.task_pauses import PauseTarget, TaskPause, check_new_pauses
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.remote_log_rows import Columns

_WHOLE: Final = -1
_NO_ID: Final = uuid.UUID(bytes=KafkaUuid.ZERO.raw)

_TARGETS: Final = """unnest(CAST(:topics AS text[]), CAST(:topic_ids AS uuid[]), CAST(:partitions AS int[]))
 AS q (topic, topic_id, partition)"""

# In an order that is the same for all, so that two operators never wait for each other.
_PAUSE: Final = text(f"""
INSERT INTO task_pause (topic, topic_id, partition, since_ms, paused_by, reason)
SELECT q.topic, q.topic_id, q.partition, :since_ms, :paused_by, :reason FROM {_TARGETS}
ORDER BY q.topic, q.topic_id, q.partition
ON CONFLICT DO NOTHING
""")

_RESUME: Final = text(f"""
DELETE FROM task_pause p WHERE (p.topic, p.topic_id, p.partition) IN (
  SELECT l.topic, l.topic_id, l.partition
  FROM {_TARGETS} JOIN task_pause l USING (topic, topic_id, partition)
  ORDER BY l.topic, l.topic_id, l.partition FOR UPDATE OF l)
""")

_PAGE: Final = text("""
SELECT topic, topic_id, partition, since_ms, paused_by, reason FROM task_pause
WHERE (topic, topic_id, partition) > (:topic, :topic_id, :partition)
ORDER BY topic, topic_id, partition LIMIT :page_size
""")


class SqlTaskPauses:
    """Pauses in PostgreSQL."""

    def __init__(self, database: Database, clock: Clock, *, page_size: int) -> None:
        self._database = database
        self._clock = clock
        self._page_size = page_size

    async def pause(self, targets: Collection[PauseTarget], paused_by: str, reason: str) -> None:
        """See `TaskPauses.pause_tasks`."""
        check_new_pauses(targets, paused_by, reason)
        told = {"since_ms": self._clock.now_ms(), "paused_by": paused_by, "reason": reason}
        await self._change(_PAUSE, targets, told)

    async def resume(self, targets: Collection[PauseTarget]) -> None:
        """See `TaskPauses.resume_tasks`."""
        await self._change(_RESUME, targets, {})

    async def listed(self) -> AsyncIterator[TaskPause]:
        """See `TaskPauses.list_task_pauses`; page by page."""
        after: dict[str, Any] = {"topic": "", "topic_id": _NO_ID, "partition": _WHOLE}
        while True:
            page = await self._page(after)
            for row in page:
                yield _pause(row)
            if len(page) < self._page_size:
                return
            after = {key: page[-1][key] for key in after}

    async def _change(
        self, statement: Any, targets: Collection[PauseTarget], told: dict[str, Any]
    ) -> None:
        if not targets:
            return
        keys = [_key(target) for target in targets]
        values = told | {
            "topics": [topic for topic, _, _ in keys],
            "topic_ids": [topic_id for _, topic_id, _ in keys],
            "partitions": [partition for _, _, partition in keys],
        }

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(statement, values)

        await self._database.write(work)

    async def _page(self, after: dict[str, Any]) -> list[Columns]:
        values = after | {"page_size": self._page_size}

        async def work(connection: AsyncConnection) -> list[Columns]:
            return list((await connection.execute(_PAGE, values)).mappings())

        return await self._database.read(work)


def _key(target: PauseTarget) -> tuple[str, uuid.UUID, int]:
    if isinstance(target, str):
        return target, _NO_ID, _WHOLE
    return target.topic, uuid.UUID(bytes=target.topic_id.raw), target.partition


def _pause(row: Columns) -> TaskPause:
    target: PauseTarget = row["topic"]
    if row["partition"] != _WHOLE:
        target = TopicIdPartition(KafkaUuid(row["topic_id"].bytes), row["topic"], row["partition"])
    return TaskPause(
        target=target,
        since_ms=row["since_ms"],
        paused_by=row["paused_by"],
        reason=row["reason"],
    )
