"""How many files the process may have open: each log holds one open, each segment that is read up to three."""

import resource

import structlog

__all__ = ["raise_open_files_limit"]

logger = structlog.get_logger(__name__)


def raise_open_files_limit() -> None:
    """Takes as many as the system allows, as Java does for Kafka; what shells begin with is often 1,024. Idempotent.

    Without a descriptor a file cannot be told from one on a failed disk, and its log dir goes offline.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        logger.warning("open_files_limit_not_raised", limit=soft, hard=hard, error=str(error))
