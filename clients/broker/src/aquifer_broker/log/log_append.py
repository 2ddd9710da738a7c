"""Appending to a log: judge, give out offsets, write, take into account."""

from collections.abc import Sequence

from aquifer_core.formats.checksum import Buffer
from aquifer_core.formats.control_records import EndTxnMarker, decode_end_txn_batch
from aquifer_core.formats.record_batch import RecordBatch

from aquifer_broker.log.append_analysis import AnalyzedRecords, analyze_records
from aquifer_broker.log.append_plan import AppendPlan, plan_leader_append, plan_replica_append
from aquifer_broker.log.log_resources import LogResources
from aquifer_broker.log.log_roll import roll_log
from aquifer_broker.log.log_segment import LogSegment
from aquifer_broker.log.log_state import LogState
from aquifer_broker.log.log_values import AppendInfo, AppendOrigin
from aquifer_broker.log.producer_entry import BatchMetadata

__all__ = ["append_records"]


def append_records(
    state: LogState,
    resources: LogResources,
    records: Buffer,
    leader_epoch: int,
    origin: AppendOrigin,
) -> AppendInfo:
    """Appends batches in one write to the page cache; the documentation of errors is at `PartitionLog.append`."""
    now_ms = resources.clock.now_ms()
    analyzed = analyze_records(records, origin, state.config, now_ms)
    if not analyzed.batches:
        return AppendInfo(
            first_offset=-1,
            last_offset=-1,
            log_append_time_ms=-1,
            log_start_offset=state.log_start_offset,
            size_bytes=0,
        )
    markers = [
        decode_end_txn_batch(batch) if batch.is_control else None for batch in analyzed.batches
    ]
    for batch, marker in zip(analyzed.batches, markers, strict=True):
        duplicate = state.producers.check(batch, origin, marker)
        if duplicate is not None:
            return _duplicate_info(state, duplicate)
    plan = _plan(state, analyzed, leader_epoch, origin, now_ms)
    segment = _segment_for(state, resources, plan, now_ms)
    segment.append(plan.pieces, plan.batches, plan.size_bytes)
    _take_into_account(state, segment, plan, analyzed.batches, markers)
    return AppendInfo(
        first_offset=plan.first_offset,
        last_offset=plan.last_offset,
        log_append_time_ms=plan.log_append_time_ms,
        log_start_offset=state.log_start_offset,
        size_bytes=plan.size_bytes,
    )


def _plan(
    state: LogState,
    analyzed: AnalyzedRecords,
    leader_epoch: int,
    origin: AppendOrigin,
    now_ms: int,
) -> AppendPlan:
    if origin is AppendOrigin.REPLICATION:
        return plan_replica_append(
            analyzed, next_offset=state.log_end_offset, leader_epochs=state.leader_epochs
        )
    return plan_leader_append(
        analyzed,
        next_offset=state.log_end_offset,
        leader_epoch=leader_epoch,
        leader_epochs=state.leader_epochs,
        timestamp_type=state.config.message_timestamp_type,
        now_ms=now_ms,
    )


def _segment_for(
    state: LogState, resources: LogResources, plan: AppendPlan, now_ms: int
) -> LogSegment:
    active = state.segments.active
    if active.must_roll(
        state.config,
        added_bytes=plan.size_bytes,
        max_timestamp_ms=plan.max_timestamp_ms,
        last_offset=plan.last_offset,
        now_ms=now_ms,
    ):
        return roll_log(state, resources, plan.first_offset)
    return active


def _take_into_account(
    state: LogState,
    segment: LogSegment,
    plan: AppendPlan,
    batches: Sequence[RecordBatch],
    markers: Sequence[EndTxnMarker | None],
) -> None:
    state.segments.size_bytes += plan.size_bytes
    for entry in plan.epochs:
        if state.leader_epochs.assign(entry.epoch, entry.start_offset):
            state.epochs_saved = False
    for batch, appended, marker in zip(batches, plan.batches, markers, strict=True):
        completed = state.producers.apply(batch, appended, marker)
        if completed is not None and completed.is_aborted:
            segment.transaction_index.append(state.producers.aborted_transaction(completed))
    state.log_end_offset = plan.last_offset + 1


def _duplicate_info(state: LogState, duplicate: BatchMetadata) -> AppendInfo:
    return AppendInfo(
        first_offset=duplicate.first_offset,
        last_offset=duplicate.last_offset,
        log_append_time_ms=duplicate.timestamp_ms,
        log_start_offset=state.log_start_offset,
        size_bytes=0,
        duplicate=True,
    )
