"""Key-encryption keys that are at hand: RSA and AES."""

import base64
import binascii
from abc import ABC, abstractmethod
from typing import Final

from aquifer_core.errors import InvalidConfigurationError
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, OAEP
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

_PEM: Final = b"-----BEGIN "
_PRIVATE: Final = b"PRIVATE KEY-----"
_LEAST_RSA_BITS: Final = 2048
_AES_BYTES: Final = 32


class WrappingKey(ABC):
    """Wraps and unwraps data keys."""

    algorithm: str

    @abstractmethod
    def wrap(self, data_key: bytes) -> bytes:
        """Wrap a data key."""

    @abstractmethod
    def unwrap(self, wrapped: bytes) -> bytes | None:
        """Unwrap a data key; none when another key wrapped it, or when this is only the half that wraps."""


class RsaWrappingKey(WrappingKey):
    """RSA-OAEP with SHA-256; a public key alone wraps but does not unwrap."""

    algorithm = "rsa-oaep-sha256"

    def __init__(self, key: RSAPublicKey | RSAPrivateKey) -> None:
        self._private = key if isinstance(key, RSAPrivateKey) else None
        self._public = key.public_key() if isinstance(key, RSAPrivateKey) else key

    def wrap(self, data_key: bytes) -> bytes:
        """Encrypt with the public key."""
        return self._public.encrypt(data_key, _oaep())

    def unwrap(self, wrapped: bytes) -> bytes | None:
        """Decrypt with the private key."""
        if self._private is None:
            return None
        try:
            return self._private.decrypt(wrapped, _oaep())
        except ValueError:
            return None


class AesWrappingKey(WrappingKey):
    """AES-256 key wrap (RFC 3394)."""

    algorithm = "aes-256-kw"

    def __init__(self, key: bytes) -> None:
        self._key = key

    def wrap(self, data_key: bytes) -> bytes:
        """Wrap; needs no nonce."""
        return aes_key_wrap(self._key, data_key)

    def unwrap(self, wrapped: bytes) -> bytes | None:
        """Unwrap; the wrapping is authenticated."""
        try:
            return aes_key_unwrap(self._key, wrapped)
        except (InvalidUnwrap, ValueError):
            return None


def parse_wrapping_key(content: bytes, where: str) -> WrappingKey:
    """Parse a key: PEM of an RSA private or public key, or 32 bytes in base64 for AES.

    Raises:
        InvalidConfigurationError: it is neither; the text never has the content.
    """
    if _PEM in content:
        return RsaWrappingKey(_parse_pem(content, where))
    try:
        key = base64.b64decode(content.strip(), validate=True)
    except binascii.Error:
        key = b""
    if len(key) != _AES_BYTES:
        raise InvalidConfigurationError(
            f"{where} is neither a PEM key nor {_AES_BYTES} bytes in base64"
        )
    return AesWrappingKey(key)


def _parse_pem(content: bytes, where: str) -> RSAPublicKey | RSAPrivateKey:
    try:
        is_private = _PRIVATE in content
        key = load_pem_private_key(content, None) if is_private else load_pem_public_key(content)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InvalidConfigurationError(
            f"{where} is no PEM key that can be read; keys with a passphrase cannot"
        ) from error
    if not isinstance(key, RSAPublicKey | RSAPrivateKey) or key.key_size < _LEAST_RSA_BITS:
        raise InvalidConfigurationError(
            f"{where} is not an RSA key of at least {_LEAST_RSA_BITS} bits"
        )
    return key


def _oaep() -> OAEP:
    return OAEP(mgf=MGF1(hashes.SHA256()), algorithm=hashes.SHA256(), label=None)
