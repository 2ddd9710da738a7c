"""What a Kafka cluster fails with, as errors that say what, where and the remedy."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from aquifer_core.errors import (
    AquiferError,
    DeadlineExceededError,
    ErrorReason,
    InvalidConfigurationError,
    InvalidRequestError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnavailableError,
)
from confluent_kafka import KafkaError, KafkaException

_Kind = tuple[type[AquiferError], ErrorReason | None, str]

_NOBODY: Final[_Kind] = (
    UnavailableError,
    ErrorReason.PEER_UNAVAILABLE,
    "start it, or say where it is with --bootstrap-server, and how to connect with --property",
)
_FORBIDDEN: Final[_Kind] = (PermissionDeniedError, None, "give this user the permission")
_STRANGER: Final[_Kind] = (UnauthenticatedError, None, "say who you are with --property")
_LATE: Final[_Kind] = (
    DeadlineExceededError,
    None,
    "start it, say where it is with --bootstrap-server, or ask for more time with --timeout",
)
_KINDS: Final[Mapping[int, _Kind]] = {
    KafkaError._TRANSPORT: _NOBODY,
    KafkaError._ALL_BROKERS_DOWN: _NOBODY,
    KafkaError._RESOLVE: _NOBODY,
    KafkaError._TIMED_OUT: _LATE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: _FORBIDDEN,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: _FORBIDDEN,
    KafkaError._AUTHENTICATION: _STRANGER,
    KafkaError.SASL_AUTHENTICATION_FAILED: _STRANGER,
    KafkaError._INVALID_ARG: (
        InvalidConfigurationError,
        None,
        "give properties of librdkafka with --property",
    ),
    KafkaError.INVALID_REPLICATION_FACTOR: (
        InvalidRequestError,
        ErrorReason.INVALID_REPLICATION_FACTOR,
        "give --replication-factor no more brokers than there are",
    ),
}


@contextmanager
def told(bootstrap: str) -> Iterator[None]:
    """Turns failures of the client library inside into errors of ours."""
    where = f"the Kafka cluster at {bootstrap}"
    try:
        yield
    except KafkaException as error:
        raise _translated(where, error) from error
    except TimeoutError as error:
        raise _as(_LATE, f"{where}: did not answer in time") from error


def _translated(where: str, error: KafkaException) -> AquiferError:
    cause = error.args[0]
    if not isinstance(cause, KafkaError):
        return UnavailableError(f"{where}: {cause}")
    text = f"{where}: {cause.str()}"
    kind = _KINDS.get(cause.code())
    return UnavailableError(text) if kind is None else _as(kind, text)


def _as(kind: _Kind, text: str) -> AquiferError:
    error, reason, remedy = kind
    return error(f"{text}; {remedy}", reason=reason)
