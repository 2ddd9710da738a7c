"""Kafka's rules for topic names."""

import re

from aquifer_core.errors import ErrorReason, InvalidRequestError

_MAX_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")


def check_topic_name(name: str) -> None:
    """Refuses names that Kafka refuses (`org.apache.kafka.common.internals.Topic`).

    Raises:
        InvalidRequestError: INVALID_TOPIC.
    """
    problem = _problem(name)
    if problem:
        raise InvalidRequestError(
            f"topic name {name!r} {problem}",
            reason=ErrorReason.INVALID_TOPIC,
            metadata={"topic": name},
        )


def collision_name(name: str) -> str:
    """Equal for names that differ only in '.' and '_', which metrics cannot tell apart."""
    return name.replace(".", "_")


def _problem(name: str) -> str:
    if not name:
        return "is empty"
    if name in (".", ".."):
        return "is '.' or '..'"
    if len(name) > _MAX_LENGTH:
        return f"is longer than {_MAX_LENGTH} characters"
    if not _LEGAL.match(name):
        return "has characters other than ASCII letters, digits, '.', '_' and '-'"
    return ""
