"""When a failed attempt is repeated, and after how long."""

import random
from dataclasses import dataclass

from aquifer_core.errors import AquiferError, QuotaExceededError, UnavailableError

from aquifer_rpc.settings import GrpcClientSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """UNAVAILABLE is repeated with back-off and jitter, RESOURCE_EXHAUSTED when and as `RetryInfo` says, nothing else is.

    Every RPC of ours may be repeated. ABORTED is not repeated here: the caller has to read again first.
    """

    max_attempts: int
    backoff_min_s: float
    backoff_max_s: float

    @classmethod
    def of(cls, settings: GrpcClientSettings) -> "RetryPolicy":
        """The policy that settings ask for."""
        return cls(
            max_attempts=settings.max_attempts,
            backoff_min_s=settings.retry_backoff_min_s,
            backoff_max_s=settings.retry_backoff_max_s,
        )

    def pause_s(self, error: AquiferError, attempt: int) -> float | None:
        """Pause before the next attempt, never below what the server asked for; None when there is none.

        Args:
            error: of the attempt that failed.
            attempt: its number, from 1.
        """
        if attempt >= self.max_attempts:
            return None
        asked_s = None if error.retry_after_ms is None else error.retry_after_ms / 1000
        if isinstance(error, QuotaExceededError):
            return None if asked_s is None else asked_s * random.uniform(1.0, 1.1)
        if not isinstance(error, UnavailableError):
            return None
        longest_s = min(self.backoff_max_s, self.backoff_min_s * 2.0 ** (attempt - 1))
        return max(asked_s or 0.0, longest_s * random.uniform(0.5, 1.0))
