"""What retention deletes, decided by statements over the offset lineage (K-3.4, SR-10, SR-11, SR-17).

They say what `aquifer_core.retention.plan_retention` says, and a property test holds the two together. Segments stay in the
database: only those that are chosen travel. Of a partition with very many segments all are weighed, page by page; then those
that expire are found from the oldest upwards.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

from aquifer_core.ids import TopicIdPartition
from aquifer_core.leader_epoch import build_filtered_leader_epoch_map
from aquifer_core.ports import (
    RetentionCandidate,
    RetentionPlan,
    RetentionPolicy,
    RetentionReason,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.remote_log_retention_statements import (
    EXPIRY,
    PLAN,
    SURVEY,
    UNFINISHED,
)
from aquifer_metadata.adapters.postgres.remote_log_rows import (
    FACT_COLUMN_NAMES,
    partition_key,
    segment_from_row,
)

_EXPIRY_GROWTH: Final = 8
"""Segments behind the first that stays need not be looked at, so that the walk to it begins with small steps."""

_NO_OFFSET: Final = -1

_Rows = Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSizes:
    """How much is done at once.

    Attributes:
        whole: partitions of fewer segments, nearly all, are decided with one statement.
        page: segments that a statement looks at, so that it ends well within its time limit.
        first_step: segments that are looked at first for what has expired: most often little has since the last time.
        candidates: the oldest of a large backlog, as many as a message holds; the rest is chosen again when these are gone.
    """

    whole: int = 20_000
    page: int = 250_000
    first_step: int = 1_000
    candidates: int = 5_000


@dataclass(slots=True, kw_only=True)
class _Survey:
    """What the pages so far weigh, and what of them goes whatever the size."""

    after: int = _NO_OFFSET
    covered_until: int = _NO_OFFSET
    remote_bytes: int = 0
    ended: bool = False
    chosen: "_Chosen"

    def go_on(self, rows: _Rows, size: int) -> None:
        """Takes a page in, of at least `size` segments unless it is the last."""
        share, segments, last_start, covered = rows[0][:4]
        self.remote_bytes += share
        self.after = _later(self.after, last_start)
        self.covered_until = _later(self.covered_until, covered)
        self.ended = segments < size
        self.chosen.add(rows, 4)

    def parameters(self) -> dict[str, Any]:
        """Of the next page."""
        return {
            "after": self.after,
            "covered_until": self.covered_until,
            "last_class": self.chosen.last_class,
        }


@dataclass(slots=True, kw_only=True)
class _Expiry:
    """The walk from the oldest segment upwards, to the first that stays."""

    total_bytes: int
    after: int = _NO_OFFSET
    covered_until: int = _NO_OFFSET
    chosen_until: int = _NO_OFFSET
    freed_bytes: int = 0
    moved_to: int = _NO_OFFSET
    ended: bool = False
    chosen: "_Chosen"

    def go_on(self, rows: _Rows, size: int) -> None:
        """Takes a page in, of at least `size` segments unless it is the last."""
        moved_to, segments, last_start, covered, chosen, freed, stopped = rows[0][:7]
        self.moved_to = _later(self.moved_to, moved_to)
        self.after = _later(self.after, last_start)
        self.covered_until = _later(self.covered_until, covered)
        self.chosen_until = _later(self.chosen_until, chosen)
        self.freed_bytes += freed
        self.ended = stopped or segments < size
        self.chosen.add(rows, 7)

    def parameters(self) -> dict[str, Any]:
        """Of the next page."""
        return {
            "after": self.after,
            "covered_until": self.covered_until,
            "chosen_until": self.chosen_until,
            "freed_bytes": self.freed_bytes,
            "total_bytes": self.total_bytes,
            "last_class": self.chosen.last_class,
        }


@dataclass(slots=True)
class _Chosen:
    """The first candidates: by class, within a class by offset, of unfinished deletions by the time of their last attempt."""

    tip: TopicIdPartition
    most: int
    found: list[tuple[int, int, RetentionCandidate]] = field(default_factory=list)

    def add(self, rows: _Rows, at: int) -> None:
        """Takes those of a page, whose class is at that place of a row. Pages follow one another."""
        for row in rows:
            if row[at]:
                candidate = _candidate(self.tip, row[at:])
                unfinished = row[at] == UNFINISHED
                tried_ms = candidate.metadata.event_timestamp_ms if unfinished else 0
                self.found.append((row[at], tried_ms, candidate))
        self.found.sort(key=itemgetter(0, 1))
        del self.found[self.most :]

    @property
    def candidates(self) -> tuple[RetentionCandidate, ...]:
        """What was found."""
        return tuple(candidate for _, _, candidate in self.found)

    @property
    def last_class(self) -> int:
        """The last class that later pages are still asked for."""
        if len(self.found) < self.most or self.found[-1][0] == UNFINISHED:
            return UNFINISHED
        return self.found[-1][0] - 1


class RemoteLogRetention:
    """Decides, and changes nothing. No statement looks at more than a page, whatever the number of segments."""

    def __init__(self, database: Database, sizes: RetentionSizes | None = None) -> None:
        self._database = database
        self._sizes = sizes or RetentionSizes()

    async def plan(
        self,
        tip: TopicIdPartition,
        lineage: Mapping[int, int],
        policy: RetentionPolicy,
        now_ms: int,
    ) -> RetentionPlan:
        """See `RemoteLogMetadataManager.list_retention_candidates`; the first candidates of a large backlog."""
        values = plan_values(tip, lineage, policy, now_ms, self._sizes)
        rows = await self._database.read(lambda connection: PLAN.rows(connection, values))
        remote_bytes, segments, moved_to = rows[0][:3]
        chosen = _Chosen(tip, self._sizes.candidates)
        chosen.add(rows, 3)
        if segments >= self._sizes.whole:
            chosen, remote_bytes, moved_to = await self._database.snapshot(
                lambda connection: self._pages(connection, tip, values)
            )
        moves = moved_to is not None and moved_to > policy.log_start_offset
        return RetentionPlan(
            candidates=chosen.candidates,
            new_log_start_offset=moved_to if moves else None,
            remote_bytes=remote_bytes,
        )

    async def _pages(
        self, connection: AsyncConnection, tip: TopicIdPartition, values: Mapping[str, Any]
    ) -> tuple[_Chosen, int, int]:
        """Candidates, bytes and the new log start; all pages as of one moment, since sizes of different ones do not belong together."""
        await connection.begin()
        chosen = _Chosen(tip, self._sizes.candidates)
        survey = _Survey(chosen=chosen)
        page = {**values, "page_size": self._sizes.page}
        while not survey.ended:
            rows = await SURVEY.rows(connection, {**page, **survey.parameters()})
            survey.go_on(rows, self._sizes.page)
        # Only now the size of all of it is known.
        expiry = _Expiry(total_bytes=survey.remote_bytes, chosen=chosen)
        step = self._sizes.first_step
        while not expiry.ended:
            page = {**values, "page_size": step}
            rows = await EXPIRY.rows(connection, {**page, **expiry.parameters()})
            expiry.go_on(rows, step)
            step = min(self._sizes.page, step * _EXPIRY_GROWTH)
        return chosen, survey.remote_bytes, expiry.moved_to


def _later(offset: int, found: int | None) -> int:
    return offset if found is None else max(offset, found)


def _candidate(tip: TopicIdPartition, row: Sequence[Any]) -> RetentionCandidate:
    columns = dict(zip(FACT_COLUMN_NAMES, row[2:], strict=True))
    return RetentionCandidate(
        metadata=segment_from_row(tip, columns), reason=RetentionReason[row[1]]
    )


def plan_values(
    tip: TopicIdPartition,
    lineage: Mapping[int, int],
    policy: RetentionPolicy,
    now_ms: int,
    sizes: RetentionSizes = RetentionSizes(),
) -> Mapping[str, Any]:
    """Parameters of the statements, for the first page."""
    filtered = build_filtered_leader_epoch_map(lineage)
    return partition_key(tip).values | {
        "lineage_epochs": list(filtered),
        "lineage_starts": list(filtered.values()),
        "earliest_epoch": min(lineage, default=None),
        "log_start_offset": policy.log_start_offset,
        "log_end_offset": policy.log_end_offset,
        "cut_off_ms": now_ms - policy.retention_ms if policy.retention_ms >= 0 else -1,
        "retention_bytes": policy.retention_bytes,
        "local_only_bytes": policy.local_only_bytes,
        "in_progress": [uuid.UUID(bytes=each.raw) for each in policy.in_progress],
        "copy_abandoned_after_ms": policy.copy_abandoned_after_ms,
        "now_ms": now_ms,
        "page_size": sizes.whole,
        "max_candidates": sizes.candidates,
        "after": _NO_OFFSET,
        "covered_until": _NO_OFFSET,
        "chosen_until": _NO_OFFSET,
        "freed_bytes": 0,
        "last_class": UNFINISHED,
    }
