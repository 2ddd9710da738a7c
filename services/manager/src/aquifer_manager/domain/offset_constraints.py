"""The five offsets of a tiered partition and how they must lie (SR-20, K-3.14)."""

from dataclasses import dataclass, replace
from typing import Self

import structlog
from aquifer_core.errors import ErrorReason, PreconditionError

from aquifer_manager.domain.partition_work import PartitionWork
from aquifer_manager.domain.ports import LogDescription

__all__ = ["FiveOffsets", "check_offsets"]

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FiveOffsets:
    """Rx, Lx, Ry, Ly and Lz of the requirement.

    Attributes:
        log_start: Rx, first offset of the partition, remote included.
        local_log_start: Lx, first local offset.
        highest_remote: Ry, last offset in remote storage; -1 for none.
        last_stable: Ly.
        log_end: Lz, next offset to be written.
    """

    log_start: int
    local_log_start: int
    highest_remote: int
    last_stable: int
    log_end: int

    @classmethod
    def of(cls, log: LogDescription, highest_remote: int) -> Self:
        """The offsets of a log as described, with the highest remote offset that the manager knows."""
        return cls(
            log_start=log.log_start_offset,
            local_log_start=log.local_log_start_offset,
            highest_remote=highest_remote,
            last_stable=log.last_stable_offset,
            log_end=log.log_end_offset,
        )

    def copied_up_to(self, offset: int) -> Self:
        """The offsets after a copy that ends at `offset`."""
        return replace(self, highest_remote=max(self.highest_remote, offset))

    def starting_at(self, offset: int) -> Self:
        """The offsets after the log start was raised to `offset`; local segments below it go as well."""
        log_start = max(self.log_start, offset)
        return replace(
            self, log_start=log_start, local_log_start=max(self.local_log_start, log_start)
        )

    def violations(self) -> list[str]:
        """Constraints that do not hold; empty when all do."""
        remote_only = self.local_log_start > self.log_start
        rules = {
            "log_start <= local_log_start": self.log_start <= self.local_log_start,
            "local_log_start <= last_stable": self.local_log_start <= self.last_stable,
            "last_stable <= log_end": self.last_stable <= self.log_end,
            "highest_remote < last_stable": self.highest_remote == -1
            or self.highest_remote < self.last_stable,
            # Deleted records may leave the start above all that is remote; then nothing is remote only.
            "log_start <= highest_remote": not remote_only or self.log_start <= self.highest_remote,
            "no gap between remote and local": not remote_only
            or self.local_log_start <= self.highest_remote + 1,
        }
        return [rule for rule, holds in rules.items() if not holds]


def check_offsets(offsets: FiveOffsets, work: PartitionWork, moment: str) -> None:
    """Refuses an operation whose offsets break a constraint; counts and logs it.

    Args:
        offsets: as they are, or as they would be.
        work: counts violations.
        moment: for the log: `before_copy`, `after_copy`, `before_delete`, `after_delete`.

    Raises:
        PreconditionError: a constraint does not hold (OFFSET_CONSTRAINT); try again later.
    """
    broken = offsets.violations()
    if not broken:
        return
    work.constraint_violations += 1
    five = {
        "log_start": offsets.log_start,
        "local_log_start": offsets.local_log_start,
        "highest_remote": offsets.highest_remote,
        "last_stable": offsets.last_stable,
        "log_end": offsets.log_end,
    }
    logger.warning(
        "offset_constraint_violated",
        topic=work.topic_id_partition.topic,
        partition=work.topic_id_partition.partition,
        moment=moment,
        broken=broken,
        **five,
    )
    raise PreconditionError(
        f"{moment} of {work.topic_id_partition}: {'; '.join(broken)} does not hold for {five}",
        reason=ErrorReason.OFFSET_CONSTRAINT,
        metadata={key: str(value) for key, value in five.items()},
    )
