"""Values of settings as text."""

from typing import Any, Final

from aquifer_core.formats.record_batch import TimestampType

__all__ = ["config_text"]

_TIMESTAMP_TYPES: Final = {
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


def config_text(value: Any) -> str | None:
    """A parsed value as text."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, TimestampType):
        return _TIMESTAMP_TYPES[value]
    if isinstance(value, tuple | frozenset):
        return ",".join(sorted(value) if isinstance(value, frozenset) else value)
    return str(value)
