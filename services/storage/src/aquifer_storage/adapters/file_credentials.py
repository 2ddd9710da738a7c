"""Credentials in a file, read again when it changes."""

import configparser
import threading
from pathlib import Path
from typing import Final

import structlog
from aquifer_core.errors import InvalidConfigurationError
from minio.credentials.credentials import Credentials
from minio.credentials.providers import Provider

logger = structlog.get_logger(__name__)

_ACCESS_KEY: Final = "aws_access_key_id"
_SECRET_KEY: Final = "aws_secret_access_key"
_TOKEN: Final = "aws_session_token"

_Fingerprint = tuple[int, int, int, int]


class FileCredentials(Provider):
    """Credentials out of a file as AWS tools share it: sections are profiles, with `aws_access_key_id`, `aws_secret_access_key` and
    perhaps `aws_session_token`.

    The file is looked at for every request and read when it changed, by replacement or in place. What cannot be read then is logged,
    and the credentials read before stay in use. Called in worker threads.
    """

    def __init__(self, path: Path, profile: str = "default") -> None:
        """Read the file.

        Raises:
            InvalidConfigurationError: it is not there, or lacks the profile or a key.
        """
        self._path = path
        self._profile = profile
        self._lock = threading.Lock()
        self._complaint = ""
        self._seen = self._fingerprint()
        self._credentials = self._read()

    def retrieve(self) -> Credentials:
        """Return the credentials as the file has them now."""
        with self._lock:
            try:
                found = self._fingerprint()
                if found != self._seen:
                    self._credentials = self._read()
                    self._seen = found
                    self._complaint = ""
                    logger.info("credentials_read", file=str(self._path))
            except InvalidConfigurationError as error:
                if error.message != self._complaint:
                    self._complaint = error.message
                    logger.warning("credentials_not_read", error=error.message)
            return self._credentials

    def _fingerprint(self) -> _Fingerprint:
        try:
            status = self._path.stat()
        except OSError as error:
            raise InvalidConfigurationError(
                f"credentials file {self._path} cannot be read: {error.strerror}"
            ) from error
        return status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size

    def _read(self) -> Credentials:
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read_string(self._path.read_text())
            section = parser[self._profile]
            return Credentials(section[_ACCESS_KEY], section[_SECRET_KEY], section.get(_TOKEN))
        except (OSError, ValueError, KeyError, configparser.Error) as error:
            # The error itself may quote the file.
            raise InvalidConfigurationError(
                f"credentials file {self._path} cannot be read, or lacks {_ACCESS_KEY} or {_SECRET_KEY} "
                f"in [{self._profile}] ({type(error).__name__})"
            ) from None
