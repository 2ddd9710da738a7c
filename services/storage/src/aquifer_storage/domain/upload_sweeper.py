"""Forgets uploads in parts that crashed processes left behind; nobody sees them, and stores charge for them."""

from collections.abc import Callable
from typing import Protocol

import structlog

from aquifer_storage.domain.object_key import ObjectKeys

logger = structlog.get_logger(__name__)


class StaleUploads(Protocol):
    """Unfinished uploads of a store."""

    async def abort_stale_uploads(
        self, prefix: str, older_than_s: float, is_ours: Callable[[str], bool]
    ) -> int:
        """Forget uploads older than that, of keys under a prefix that are ours; returns how many."""
        ...


class UploadSweeper:
    """Sweeps by age: an upload that another replica works on is younger than any copy may take.

    Only keys that name a segment's log are touched.
    """

    def __init__(self, uploads: StaleUploads, keys: ObjectKeys, *, older_than_s: float) -> None:
        self._uploads = uploads
        self._keys = keys
        self._older_than_s = older_than_s

    async def sweep(self) -> int:
        """Sweep once; returns how many uploads were forgotten. Idempotent."""
        swept = await self._uploads.abort_stale_uploads(
            self._keys.prefix, self._older_than_s, self._keys.is_log
        )
        if swept:
            logger.info("stale_uploads_swept", uploads=swept, older_than_s=self._older_than_s)
        return swept
