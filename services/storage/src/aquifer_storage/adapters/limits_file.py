"""Limits of the kinds of work in a file, applied again when it changes."""

from pathlib import Path
from typing import Final

import structlog
from aquifer_core.errors import InvalidConfigurationError
from pydantic import BaseModel, ConfigDict, PositiveInt, TypeAdapter, ValidationError

from aquifer_storage.domain.work_limits import Work, WorkLimit, WorkLimits

logger = structlog.get_logger(__name__)


class _Limit(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    bytes_per_s: PositiveInt | None = None
    concurrency: PositiveInt | None = None


_LIMITS: Final = TypeAdapter(dict[Work, _Limit])


class LimitsFile:
    """Keeps limits as a JSON file has them: `{"copy": {"bytes_per_s": 104857600, "concurrency": 8}, "verify": {"concurrency": 1}}`.

    Kinds of work are copy, fetch, verify and delete. What is not given is not limited.
    """

    def __init__(self, path: Path, limits: WorkLimits) -> None:
        self._path = path
        self._limits = limits
        self._applied: bytes | None = None

    async def reload(self) -> None:
        """Apply the file if it is another one than before. Idempotent.

        Raises:
            InvalidConfigurationError: it cannot be read or is refused; the limits stay as they are.
        """
        try:
            data = self._path.read_bytes()
            if data == self._applied:
                return
            found = _LIMITS.validate_json(data)
        except (OSError, ValidationError) as error:
            text = " ".join(str(error).split())
            raise InvalidConfigurationError(f"limits file {self._path}: {text}") from error
        self._limits.apply(
            {
                work: WorkLimit(bytes_per_s=limit.bytes_per_s, concurrency=limit.concurrency)
                for work, limit in found.items()
            }
        )
        self._applied = data
        limits = {str(work): limit.model_dump() for work, limit in found.items()}
        logger.info("work_limits_applied", file=str(self._path), limits=limits)
