"""Whatever is done to a partition, memory and PostgreSQL give the same answers and the same refusals.

Memory is the model. A write may die before any of its statements, as with a process that is killed there, and is then repeated.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import builders
from aquifer_core.clock import SystemClock
from aquifer_core.errors import AquiferError
from aquifer_core.fakes.remote_log_metadata import InMemoryRemoteLogMetadataManager
from aquifer_core.ports import RemoteLogMetadataManager, RetentionPolicy
from aquifer_core.segment import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)
from aquifer_core.state import RemoteLogSegmentState, RemotePartitionDeleteState
from aquifer_metadata.adapters.postgres.change_signal import ChangeSignal
from aquifer_metadata.adapters.postgres.database import Database, DatabaseOptions
from aquifer_metadata.adapters.postgres.remote_log_metadata_manager import (
    PostgresRemoteLogMetadataManager,
)
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Engine, event

LAST_OFFSET = 24
EPOCHS = (0, 1, 2)
LINEAGE = {0: 0, 1: 8, 2: 16}
DEATHS = st.sampled_from([None, None, 0, 1, 2, 3, 4, 5])
"""Statements that a write still gets to before it dies; None: it lives. No write has more than six."""


class DiedError(Exception):
    """Where a process would have been killed."""


class Mortality:
    """Kills what runs statements on an engine."""

    def __init__(self, engine: Engine) -> None:
        self.deaths = 0
        self._left: int | None = None
        event.listen(engine, "before_cursor_execute", self._before)

    def _before(self, *_: object) -> None:
        if self._left is None:
            return
        if self._left == 0:
            self._left = None
            self.deaths += 1
            raise DiedError
        self._left -= 1

    async def live(self, statements: int | None, action: Callable[[], Awaitable[Any]]) -> Any:
        """Runs an action, again when it died."""
        self._left = statements
        try:
            return await action()
        except DiedError:
            return await action()
        finally:
            self._left = None


async def answer(manager: RemoteLogMetadataManager, method: str, *args: Any, **named: Any) -> Any:
    """What a manager answers, refusals included."""
    try:
        given = getattr(manager, method)(*args, **named)
        if method == "list_remote_log_segments":
            return [metadata async for metadata in given]
        given = await given
    except AquiferError as error:
        return type(error), error.reason, error.metadata
    if method != "segment_history":
        return given
    return [(event.from_state, event.to_state, event.leader_epoch, event.reason) for event in given]


@st.composite
def segments(draw: st.DrawFn) -> tuple[int, int, dict[int, int], bool]:
    """Bounds, epochs and whether the transaction index is empty; mostly of one lineage, sometimes not."""
    start = draw(st.integers(0, LAST_OFFSET - 1))
    end = draw(st.integers(start, LAST_OFFSET))
    if draw(st.booleans()):
        first = max(epoch for epoch, at in LINEAGE.items() if at <= start)
        epochs = {first: start} | {e: at for e, at in LINEAGE.items() if start < at <= end}
    else:
        epochs = {draw(st.sampled_from(EPOCHS)): start}
    return start, end, epochs, draw(st.booleans())


class Agreement(RuleBasedStateMachine):
    """Does everything twice and compares."""

    runner: asyncio.Runner
    sql: RemoteLogMetadataManager
    mortality: Mortality

    @initialize()
    def begin(self) -> None:
        self.partition = builders.topic_id_partition()
        self.known: list[RemoteLogSegmentMetadata] = []
        self.fake = InMemoryRemoteLogMetadataManager()

    def agree(self, *questions: tuple[Any, ...], dies: int | None = None, **named: Any) -> None:
        """Both give the same answer to each (method, arguments)."""
        self.runner.run(self._agree(questions, dies, named))

    async def _agree(
        self, questions: tuple[tuple[Any, ...], ...], dies: int | None, named: Any
    ) -> None:
        for question in questions:
            expected = await answer(self.fake, *question, **named)

            async def ask(question: tuple[Any, ...] = question) -> Any:
                return await answer(self.sql, *question, **named)

            assert await self.mortality.live(dies, ask) == expected, question

    @rule(bounds=segments(), leader_epoch=st.sampled_from([None, None, 0, 1, 2]), dies=DEATHS)
    def add(
        self,
        bounds: tuple[int, int, dict[int, int], bool],
        leader_epoch: int | None,
        dies: int | None,
    ) -> None:
        start, end, epochs, empty = bounds
        metadata = builders.remote_segment(
            self.partition, start, end, epochs, txn_index_empty=empty
        )
        self.known.append(metadata)
        self.agree(
            ("add_remote_log_segment_metadata", metadata), dies=dies, leader_epoch=leader_epoch
        )

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def add_again(self, data: st.DataObject) -> None:
        metadata = data.draw(st.sampled_from(self.known))
        self.agree(("add_remote_log_segment_metadata", metadata))

    @precondition(lambda self: self.known)
    @rule(
        data=st.data(),
        state=st.sampled_from(
            [*RemoteLogSegmentState, RemoteLogSegmentState.COPY_SEGMENT_FINISHED]
        ),
        custom_metadata=st.sampled_from([None, b"", b"x"]),
        leader_epoch=st.sampled_from([None, None, None, 1, 2]),
        dies=DEATHS,
    )
    def update(
        self,
        data: st.DataObject,
        state: RemoteLogSegmentState,
        custom_metadata: bytes | None,
        leader_epoch: int | None,
        dies: int | None,
    ) -> None:
        metadata = data.draw(st.sampled_from(self.known))
        change = RemoteLogSegmentMetadataUpdate(
            segment_id=metadata.segment_id,
            event_timestamp_ms=metadata.event_timestamp_ms,
            state=state,
            broker_id=1,
            custom_metadata=custom_metadata,
        )
        self.agree(
            ("update_remote_log_segment_metadata", change), dies=dies, leader_epoch=leader_epoch
        )

    @precondition(lambda self: len(self.known) > 8)
    @rule(state=st.sampled_from(RemotePartitionDeleteState), dies=DEATHS)
    def move_deletion(self, state: RemotePartitionDeleteState, dies: int | None) -> None:
        step = RemotePartitionDeleteMetadata(
            topic_id_partition=self.partition, state=state, event_timestamp_ms=1, broker_id=1
        )
        self.agree(("put_remote_partition_delete_metadata", step), dies=dies)

    @rule(offset=st.integers(0, 30), leader_epoch=st.sampled_from(EPOCHS), dies=DEATHS)
    def move_earliest(self, offset: int, leader_epoch: int, dies: int | None) -> None:
        question = "update_earliest_log_offset", self.partition, offset, leader_epoch
        self.agree(question, dies=dies)

    @rule(leader_epoch=st.sampled_from(EPOCHS), offset=st.integers(0, LAST_OFFSET + 1))
    def ask(self, leader_epoch: int, offset: int) -> None:
        timestamp_ms = builders.BASE_TIMESTAMP_MS + offset
        self.agree(
            ("remote_log_segment_metadata", self.partition, leader_epoch, offset),
            ("next_segment_with_txn_index", self.partition, leader_epoch, offset),
            ("find_segment_for_timestamp", self.partition, LINEAGE, timestamp_ms),
            ("find_segment_for_timestamp", self.partition, LINEAGE, timestamp_ms, 12),
        )

    def teardown(self) -> None:
        partition = self.partition
        policy = RetentionPolicy(
            retention_ms=0, retention_bytes=2048, log_start_offset=3, log_end_offset=20
        )
        now_ms = builders.BASE_TIMESTAMP_MS + 10
        self.agree(
            ("list_remote_log_segments", partition),
            *(("list_remote_log_segments", partition, epoch) for epoch in EPOCHS),
            *(("highest_offset_for_epoch", partition, epoch) for epoch in EPOCHS),
            *(("remote_log_size", partition, epoch) for epoch in EPOCHS),
            *(
                ("remote_log_segment_metadata", partition, epoch, offset)
                for epoch in EPOCHS
                for offset in range(0, LAST_OFFSET + 1, 2)
            ),
            ("earliest_log_offset", partition),
            *(("segment_history", metadata.segment_id) for metadata in self.known),
            ("list_retention_candidates", partition, LINEAGE, policy, now_ms),
        )


def test_memory_and_postgresql_agree(metadata_dsn: str) -> None:
    with asyncio.Runner() as runner:
        database = runner.run(_connected(metadata_dsn))
        Agreement.runner = runner
        Agreement.mortality = Mortality(database.engine.sync_engine)
        Agreement.sql = PostgresRemoteLogMetadataManager(
            database,
            ChangeSignal(database),
            clock=SystemClock(),
            trace_id=lambda: "",
            page_size=3,
            forget_batch=2,
        )
        try:
            run_state_machine_as_test(
                Agreement,
                settings=settings(
                    max_examples=30,
                    stateful_step_count=30,
                    deadline=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
            assert Agreement.mortality.deaths > 0
        finally:
            runner.run(database.engine.dispose())


async def _connected(dsn: str) -> Database:
    return Database(DatabaseOptions(dsn=dsn, pool_size=1, statement_timeout_ms=120_000))
