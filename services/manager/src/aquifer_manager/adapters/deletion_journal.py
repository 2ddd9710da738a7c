"""The job journal of partition deletions: a small JSON file, replaced atomically."""

import json
import os
from pathlib import Path
from typing import Final

from aquifer_core.errors import CorruptDataError
from aquifer_core.ids import KafkaUuid, TopicIdPartition

__all__ = ["FileDeletionJournal"]

_FILE_NAME: Final = "partition-deletions.json"


class FileDeletionJournal:
    """Partitions whose remote data is being deleted; implements `DeletionJournal`."""

    def __init__(self, directory: Path) -> None:
        """Reads what an earlier process left.

        Raises:
            CorruptDataError: the file cannot be read as a journal.
        """
        self._path = directory / _FILE_NAME
        directory.mkdir(parents=True, exist_ok=True)
        self._begun = self._read()

    def begun(self) -> dict[TopicIdPartition, int]:
        """See `DeletionJournal`."""
        return dict(self._begun)

    def begin(self, partitions: dict[TopicIdPartition, int]) -> None:
        """See `DeletionJournal`."""
        if not partitions.keys() <= self._begun.keys():
            self._begun |= partitions
            self._write()

    def end(self, tip: TopicIdPartition) -> None:
        """See `DeletionJournal`."""
        if self._begun.pop(tip, None) is not None:
            self._write()

    def _read(self) -> dict[TopicIdPartition, int]:
        try:
            entries = json.loads(self._path.read_bytes())
            return {
                TopicIdPartition(
                    KafkaUuid.parse(entry["topicId"]), entry["topic"], entry["partition"]
                ): entry["brokerId"]
                for entry in entries
            }
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptDataError(f"{self._path} is not a deletion journal: {error!r}") from error

    def _write(self) -> None:
        entries = [
            {
                "topicId": str(tip.topic_id),
                "topic": tip.topic,
                "partition": tip.partition,
                "brokerId": broker_id,
            }
            for tip, broker_id in self._begun.items()
        ]
        partial = self._path.with_suffix(".tmp")
        with partial.open("w") as file:
            json.dump(entries, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._path)
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
