"""The envelope of a segment: its data key, wrapped by a key-encryption key."""

from dataclasses import dataclass
from typing import Final

from aquifer_core.errors import ErrorReason, PreconditionError

CIPHER: Final = "aes-256-gcm"
DATA_KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedKey:
    """A data key that only the holder of a key-encryption key can unwrap.

    Attributes:
        key_id: the key-encryption key.
        algorithm: how it wraps, as its provider names it.
        data: the wrapped data key.
    """

    key_id: str
    algorithm: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """How a segment is encrypted.

    Attributes:
        cipher: how its chunks and indexes are sealed.
        key: the data key that seals them.
    """

    key: WrappedKey
    cipher: str = CIPHER


def key_unavailable(key_id: str, message: str) -> PreconditionError:
    """Return the error for a key-encryption key that is missing or wrong."""
    return PreconditionError(
        message, reason=ErrorReason.ENCRYPTION_KEY_UNAVAILABLE, metadata={"keyId": key_id}
    )
