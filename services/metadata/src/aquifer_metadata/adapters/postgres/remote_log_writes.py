"""Changes of remote segments. Those of one partition follow one another: each transaction begins by taking the partition's row."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakValueDictionary

from aquifer_core import segment_lifecycle as lifecycle
from aquifer_core.ids import KafkaUuid, RemoteLogSegmentId, TopicIdPartition
from aquifer_core.ports import Clock
from aquifer_core.segment import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)
from aquifer_core.state import RemoteLogSegmentState, RemotePartitionDeleteState
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres import remote_log_plain_writes as plain
from aquifer_metadata.adapters.postgres import remote_log_references, tiering_switch
from aquifer_metadata.adapters.postgres import remote_log_write_statements as statements
from aquifer_metadata.adapters.postgres.change_signal import ChangeSignal, partition_signal
from aquifer_metadata.adapters.postgres.database import Database, Work
from aquifer_metadata.adapters.postgres.driver_statement import DriverStatement
from aquifer_metadata.adapters.postgres.remote_log_rows import (
    Columns,
    PartitionKey,
    partition_key,
    segment_from_row,
    segment_uuid,
    segment_values,
)

_State = RemoteLogSegmentState
_FORGOTTEN = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED
_NO_EPOCH = -1


class RemoteLogWrites:
    """The writing half of the metadata of remote segments."""

    def __init__(
        self, database: Database, signal: ChangeSignal, clock: Clock, trace_id: Callable[[], str]
    ) -> None:
        self._database = database
        self._signal = signal
        self._clock = clock
        self._trace_id = trace_id
        # As long as somebody uses them.
        self._turns: WeakValueDictionary[PartitionKey, asyncio.Lock] = WeakValueDictionary()

    async def add(self, metadata: RemoteLogSegmentMetadata, leader_epoch: int | None) -> None:
        """See `RemoteLogMetadataManager.add_remote_log_segment_metadata`."""
        tip = metadata.topic_id_partition
        lifecycle.check_new_segment(metadata)
        if await self._is_done(plain.ADD, plain.add_values(metadata), tip, leader_epoch):
            return
        values = segment_values(metadata) | self._origin(leader_epoch) | {"reason": "copy started"}

        async def work(connection: AsyncConnection) -> bool:
            partition = await _take(connection, tip, leader_epoch)
            lifecycle.check_partition_accepts_segments(tip, _delete_state(partition))
            added = await connection.scalar(
                statements.ADD, values | {"version": partition["version"]}
            )
            if not added:
                await _check_known(connection, metadata)
            return bool(added)

        await self._write(tip, work)

    async def update(
        self, update: RemoteLogSegmentMetadataUpdate, leader_epoch: int | None
    ) -> None:
        """See `RemoteLogMetadataManager.update_remote_log_segment_metadata`."""
        segment_id = update.segment_id
        tip = segment_id.topic_id_partition
        lifecycle.check_update_target(update)
        if plain.is_plain_finish(update) and await self._is_done(
            plain.FINISH, plain.finish_values(update), tip, leader_epoch
        ):
            return
        origin = self._origin(leader_epoch) | {"reason": update.reason}

        async def work(connection: AsyncConnection) -> bool:
            partition = await _take(connection, tip, leader_epoch)
            forgotten = _delete_state(partition) is _FORGOTTEN
            before = None if forgotten else await _find(connection, segment_id)
            if before is None:
                last = await _last_state(connection, segment_id, tip)
                # Its row may be there for a moment longer.
                gone = forgotten and last is not None
                lifecycle.check_update_of_unknown(
                    update, _State.DELETE_SEGMENT_FINISHED if gone else last
                )
                return False
            lifecycle.check_update(update, before.state)
            if _delete_state(partition) is None:
                tiering_switch.refuse_late_deletion(update, before.state)
            after = before.with_update(update)
            if after == before:
                return False
            values = (
                segment_values(after)
                | origin
                | {"from_state": int(before.state), "version": partition["version"]}
            )
            await _apply(connection, before.state, after.state, values)
            return True

        await self._write(tip, work)

    async def move_deletion(self, metadata: RemotePartitionDeleteMetadata) -> None:
        """Records a step of a partition's deletion."""
        tip = metadata.topic_id_partition
        values = partition_key(tip).values | {
            "delete_state": int(metadata.state),
            "broker_id": metadata.broker_id,
            "event_timestamp_ms": metadata.event_timestamp_ms,
            **self._origin(None),
        }

        async def work(connection: AsyncConnection) -> bool:
            partition = await _take(connection, tip, None)
            before = await _deletion_before(connection, partition, values)
            lifecycle.check_partition_delete_transition(tip, before, metadata.state)
            if before is metadata.state:
                return False
            await connection.execute(
                statements.MOVE_DELETION, values | {"version": partition["version"]}
            )
            return True

        await self._write(tip, work)

    async def raise_earliest(self, tip: TopicIdPartition, offset: int, leader_epoch: int) -> None:
        """See `RemoteLogMetadataManager.update_earliest_log_offset`."""
        values = partition_key(tip).values | {
            "offset": offset,
            "leader_epoch": leader_epoch,
            **self._origin(leader_epoch),
        }

        async def work(connection: AsyncConnection) -> bool:
            partition = await _take(connection, tip, leader_epoch)
            current = partition["earliest_log_offset"]
            forgotten = _delete_state(partition) is _FORGOTTEN
            if forgotten or (current is not None and offset <= current):
                return False
            await connection.execute(
                statements.MOVE_EARLIEST, values | {"version": partition["version"]}
            )
            return True

        await self._write(tip, work)

    async def see_leaders(self, leaders: Mapping[TopicIdPartition, int]) -> None:
        """Fences older leaders; in one order, so that two callers cannot lock each other out."""
        rows = [
            {**partition_key(tip).values, "topic": tip.topic, "leader_epoch": leaders[tip]}
            for tip in sorted(leaders)
        ]

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(statements.SEE_LEADERS, rows)

        if rows:
            await self._database.write(work)

    async def _is_done(
        self,
        statement: DriverStatement,
        values: dict[str, Any],
        tip: TopicIdPartition,
        leader_epoch: int | None,
    ) -> bool:
        """Makes a plain change; False: it is not one, and nothing has changed."""
        values |= plain.origin_values(leader_epoch, self._trace_id(), self._clock.now_ms())
        key = partition_key(tip)
        turn = self._turns.get(key) or self._turns.setdefault(key, asyncio.Lock())
        # Whoever overtakes another makes its statement a wasted one.
        async with turn:
            done = await self._database.write_once(
                lambda connection: plain.has_effect(connection, statement, values)
            )
        if done:
            self._signal.changed(partition_signal(tip))
        return done

    async def _write(self, tip: TopicIdPartition, work: Work[bool]) -> None:
        """Runs a change. One that changes nothing still costs a version, and still fences older leaders."""
        if await self._database.write(work):
            self._signal.changed(partition_signal(tip))

    def _origin(self, leader_epoch: int | None) -> dict[str, Any]:
        return {
            "writer_leader_epoch": leader_epoch,
            "trace_id": self._trace_id(),
            "now_ms": self._clock.now_ms(),
        }


async def _take(
    connection: AsyncConnection, tip: TopicIdPartition, leader_epoch: int | None
) -> Columns:
    """Takes the partition's row, fences older leaders, and returns the row with the version of this change."""
    values = partition_key(tip).values | {
        "topic": tip.topic,
        "leader_epoch": _NO_EPOCH if leader_epoch is None else leader_epoch,
    }
    row = (await connection.execute(statements.TAKE_PARTITION, values)).mappings().one()
    lifecycle.check_leader_epoch(tip, leader_epoch, row["highest_leader_epoch"])
    return row


async def _apply(
    connection: AsyncConnection,
    before: RemoteLogSegmentState,
    after: RemoteLogSegmentState,
    values: Mapping[str, Any],
) -> None:
    if after is _State.DELETE_SEGMENT_FINISHED:
        await connection.execute(statements.REMOVE, values)
        return
    await connection.execute(statements.UPDATE, values)
    if after is before:
        return
    if after is _State.COPY_SEGMENT_FINISHED:
        await remote_log_references.reference(connection, values)
    elif before is _State.COPY_SEGMENT_FINISHED:
        await remote_log_references.unreference(connection, values)


async def _deletion_before(
    connection: AsyncConnection, partition: Columns, values: Mapping[str, Any]
) -> RemotePartitionDeleteState | None:
    """The state of a deletion. One that finished before tiering was enabled again answers late calls as it did."""
    state = _delete_state(partition)
    if state is None and await connection.scalar(statements.DELETED_BEFORE, values):
        return _FORGOTTEN
    return state


async def _find(
    connection: AsyncConnection, segment_id: RemoteLogSegmentId
) -> RemoteLogSegmentMetadata | None:
    """The segment, None also when another partition has its id."""
    values = {"segment_id": segment_uuid(segment_id)}
    row = (await connection.execute(statements.FIND, values)).mappings().one_or_none()
    if row is None or _tip(row, segment_id.topic_id_partition) is None:
        return None
    return segment_from_row(segment_id.topic_id_partition, row)


async def _check_known(connection: AsyncConnection, added: RemoteLogSegmentMetadata) -> None:
    """Accepts a repeat, refuses an id that is or was in use."""
    values = {"segment_id": segment_uuid(added.segment_id)}
    row = (await connection.execute(statements.FIND, values)).mappings().one_or_none()
    if row is not None:
        tip = added.topic_id_partition
        lifecycle.check_same_segment(segment_from_row(_tip(row, tip) or _foreign(row), row), added)
        return
    last = (await connection.execute(statements.LAST_EVENT, values)).mappings().one()
    lifecycle.check_transition(
        added.segment_id, RemoteLogSegmentState(last["to_state"]), added.state
    )


async def _last_state(
    connection: AsyncConnection, segment_id: RemoteLogSegmentId, tip: TopicIdPartition
) -> RemoteLogSegmentState | None:
    values = {"segment_id": segment_uuid(segment_id)}
    row = (await connection.execute(statements.LAST_EVENT, values)).mappings().one_or_none()
    if row is None or _tip(row, tip) is None:
        return None
    return RemoteLogSegmentState(row["to_state"])


def _tip(row: Columns, tip: TopicIdPartition) -> TopicIdPartition | None:
    """The partition, if the row is of it."""
    key = partition_key(tip)
    return tip if (row["topic_id"], row["partition"]) == (key.topic_id, key.partition) else None


def _foreign(row: Columns) -> TopicIdPartition:
    return TopicIdPartition(KafkaUuid(row["topic_id"].bytes), "", row["partition"])


def _delete_state(row: Columns) -> RemotePartitionDeleteState | None:
    state = row["delete_state"]
    return None if state is None else RemotePartitionDeleteState(state)
