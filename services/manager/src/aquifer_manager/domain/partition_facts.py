"""What metadata knows of partitions, asked for many at once where the role is able to."""

from collections.abc import Mapping, Sequence
from typing import Final

from aquifer_core.errors import AquiferError
from aquifer_core.gathered import GatheredQuestions
from aquifer_core.ids import TopicIdPartition
from aquifer_core.partition_summary import (
    PartitionSummaries,
    PartitionSummary,
    SummariesUnsupportedError,
)
from aquifer_core.ports import RemoteLogMetadataManager

from aquifer_manager.domain.backoff import RETRIABLE

__all__ = ["PartitionFacts"]

_PER_CALL: Final = 500


class PartitionFacts:
    """Announces leaders and reads summaries; runs that ask at the same time share a call."""

    def __init__(self, metadata: RemoteLogMetadataManager) -> None:
        self._metadata = metadata
        self._summaries: PartitionSummaries | None = (
            metadata if isinstance(metadata, PartitionSummaries) else None
        )
        self._leaders: GatheredQuestions[tuple[TopicIdPartition, int], None] = GatheredQuestions(
            self._announce, most_at_once=1, most_together=_PER_CALL, is_of_one=_is_of_one
        )
        self._gathered: GatheredQuestions[TopicIdPartition, PartitionSummary | None] = (
            GatheredQuestions(
                self._summarize, most_at_once=1, most_together=_PER_CALL, is_of_one=_is_of_one
            )
        )

    async def announce(self, tip: TopicIdPartition, leader_epoch: int) -> None:
        """Tells metadata of a leader epoch, so that older leaders are fenced. Idempotent."""
        await self._leaders.answer((tip, leader_epoch))

    async def summary(self, tip: TopicIdPartition) -> PartitionSummary | None:
        """A partition in numbers; None: the role has no summaries, and other questions must be asked."""
        return None if self._summaries is None else await self._gathered.answer(tip)

    async def changed(self, known: Mapping[TopicIdPartition, int]) -> set[TopicIdPartition]:
        """Partitions that no longer have the versions that are known.

        Raises:
            AquiferError: metadata did not answer.
        """
        found: set[TopicIdPartition] = set()
        if self._summaries is None:
            return set(known)
        for some in _parts(list(known.items())):
            try:
                summaries = await self._summaries.partition_summaries(some)
            except SummariesUnsupportedError:
                return set(known)
            found.update(
                tip
                for (tip, _), summary in zip(some, summaries, strict=True)
                if summary is not None
            )
        return found

    async def _announce(self, leaders: Sequence[tuple[TopicIdPartition, int]]) -> list[None]:
        epochs: dict[TopicIdPartition, int] = {}
        for tip, epoch in leaders:
            epochs[tip] = max(epoch, epochs.get(tip, epoch))
        await self._metadata.on_partition_leadership_changes(epochs, [])
        return [None] * len(leaders)

    async def _summarize(
        self, partitions: Sequence[TopicIdPartition]
    ) -> list[PartitionSummary | None]:
        assert self._summaries is not None
        try:
            return await self._summaries.partition_summaries([(tip, None) for tip in partitions])
        except SummariesUnsupportedError:  # services are upgraded in any order
            return [None] * len(partitions)


def _is_of_one(error: Exception) -> bool:
    """Whether metadata may have refused one partition; an outage is no partition's fault."""
    return isinstance(error, AquiferError) and not isinstance(error, RETRIABLE)


def _parts(
    known: list[tuple[TopicIdPartition, int]],
) -> list[list[tuple[TopicIdPartition, int | None]]]:
    return [[*known[start : start + _PER_CALL]] for start in range(0, len(known), _PER_CALL)]
