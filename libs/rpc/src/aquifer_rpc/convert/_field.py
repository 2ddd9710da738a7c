"""What every conversion needs: refusals that name the field, and enums that shift by one."""

from enum import IntEnum
from typing import TypeVar

from aquifer_core.errors import InvalidRequestError
from google.protobuf.message import Message

M = TypeVar("M", bound=Message)
E = TypeVar("E", bound=IntEnum)


def missing(field: str) -> InvalidRequestError:
    """The refusal of an absent field."""
    return InvalidRequestError(f"{field} is missing", metadata={"field": field})


def required(parent: Message, name: str, value: M, path: str = "") -> M:
    """The value of a message field that must be present.

    Raises:
        InvalidRequestError: it is absent; names the field.
    """
    if not parent.HasField(name):
        raise missing(f"{path}.{name}" if path else name)
    return value


def shifted_from_pb(enum: type[E], number: int, field: str) -> E:
    """The member for a number on the wire, which is Kafka's plus one.

    Raises:
        InvalidRequestError: unspecified or unknown; names the field.
    """
    if number == 0:
        raise missing(field)
    try:
        return enum(number - 1)
    except ValueError as error:
        raise InvalidRequestError(
            f"{field} has the unknown value {number}", metadata={"field": field}
        ) from error
