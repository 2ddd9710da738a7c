"""The TLS files of one server or client, read again when they change."""

import ssl
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import structlog
from aquifer_core.errors import InvalidConfigurationError
from opentelemetry import metrics

from aquifer_rpc import semconv
from aquifer_rpc.settings import TlsClientSettings, TlsServerSettings

logger = structlog.get_logger(__name__)

_READS: Final = metrics.get_meter("aquifer_rpc").create_counter(
    semconv.TLS_READS.name, unit=semconv.TLS_READS.unit, description=semconv.TLS_READS.doc
)
_KNOWN_CLIENTS: Final = 64

_Fingerprint = tuple[tuple[int, int, int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsMaterial:
    """What files held at one moment; PEM. None: there is no such file."""

    authorities: bytes | None
    certificates: bytes | None
    key: bytes | None


class TlsFiles:
    """Authorities, certificates and key; what was read last and fits together stays in use until something newer does.

    Files are looked at by their state in the folder (links are followed), and read when that changed. A key that is not the
    certificate's, a file that is half written, missing or unreadable: a line in the log for the first of such looks, a count for
    each, and the material from before.
    """

    def __init__(
        self,
        *,
        authorities: Path | None,
        certificates: Path | None,
        key: Path | None,
        interval_s: float,
        password: str | None = None,
    ) -> None:
        """Reads the files. Certificates and key may be in one file.

        Args:
            authorities: who certificates of the other side must come from.
            certificates: the chain of this side.
            key: of the chain's first certificate.
            interval_s: `current` looks at the files at most this often.
            password: of the key; None: it has none.

        Raises:
            InvalidConfigurationError: one cannot be read, or they do not fit together.
        """
        if (certificates is None) is not (key is None):
            # gRPC would end the process.
            raise _invalid(
                f"the TLS file {certificates or key} is a certificate without its key, or a key without its"
                " certificate; give both or none"
            )
        self._authorities = authorities
        self._certificates = certificates
        self._key = key
        given = dict.fromkeys((authorities, certificates, key))
        self._paths = [path for path in given if path is not None]
        # With one that is wrong anyway nobody is asked for a password at the terminal.
        self._password = password or ""
        self._interval_s = interval_s
        self._next_look_s = time.monotonic() + interval_s
        self._refused = False
        # What changes from here on is read again: the state is older than the content.
        self._seen = self._fingerprint()
        self.material = self._read()

    def current(self) -> TlsMaterial:
        """The material to use now; looks at the files unless the last look is not an interval old. Cheap."""
        if time.monotonic() >= self._next_look_s:
            self.look()
        return self.material

    def look(self) -> None:
        """Looks at the files now, and reads them when they changed. Never fails."""
        self._next_look_s = time.monotonic() + self._interval_s
        try:
            found = self._fingerprint()
            if found == self._seen and not self._refused:
                return
            material = self._read()
            if self._fingerprint() != found:
                return  # being written; the next look finds them whole
        except InvalidConfigurationError as error:
            self._refuse(error)
            return
        self._seen = found
        changed, self.material = material != self.material, material
        if changed or self._refused:
            self._refused = False
            _READS.add(1, {semconv.OUTCOME.key: "ok"})
            logger.info("tls_files_read", files=self._names())

    def _refuse(self, error: InvalidConfigurationError) -> None:
        _READS.add(1, {semconv.OUTCOME.key: "refused"})
        if not self._refused:
            logger.warning("tls_files_refused", files=self._names(), error=error.message)
        self._refused = True

    def _names(self) -> list[str]:
        return [str(path) for path in self._paths]

    def _fingerprint(self) -> _Fingerprint:
        return tuple(_state(path) for path in self._paths)

    def _read(self) -> TlsMaterial:
        material = TlsMaterial(
            authorities=_bytes(self._authorities),
            certificates=_bytes(self._certificates),
            key=_bytes(self._key),
        )
        if self._authorities is not None:
            _check_authorities(self._authorities)
        if self._certificates is not None and self._key is not None:
            _check_pair(self._certificates, self._key, self._password)
        return material


def server_files(settings: TlsServerSettings) -> TlsFiles:
    """Files of a server.

    Raises:
        InvalidConfigurationError: one cannot be read, or they do not fit together.
    """
    return TlsFiles(
        authorities=settings.client_ca_file,
        certificates=settings.certificate_file,
        key=settings.key_file,
        interval_s=settings.reload_interval_s,
    )


@lru_cache(_KNOWN_CLIENTS)
def client_files(settings: TlsClientSettings) -> TlsFiles:
    """Files of a client; those of the same settings are looked at once for all channels of the process.

    So a channel that is made while files are being written has the material from before, as the others.

    Raises:
        InvalidConfigurationError: one cannot be read, or they do not fit together.
    """
    return TlsFiles(
        authorities=settings.ca_file,
        certificates=settings.certificate_file,
        key=settings.key_file,
        interval_s=settings.reload_interval_s,
    )


def _state(path: Path) -> tuple[int, int, int, int, int]:
    try:
        found = path.stat()
    except OSError as error:
        raise _unreadable(path, error) from error
    # The time of the last change of permissions as well: they may be what is put right.
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _bytes(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> InvalidConfigurationError:
    return _invalid(f"{path} cannot be read: {error.strerror}; name a readable PEM file")


def _check_authorities(path: Path) -> None:
    try:
        _context().load_verify_locations(path)
    except (OSError, ValueError) as error:
        raise _invalid(f"{path} holds no whole PEM certificates: {_reason(error)}") from error


def _check_pair(certificates: Path, key: Path, password: str) -> None:
    try:
        _context().load_cert_chain(certificates, key, password=password)
    except (OSError, ValueError) as error:
        with_it = "with the given password" if password else "without a password"
        raise _invalid(
            f"{certificates} and {key} are no PEM certificate and its key, {with_it}: {_reason(error)}"
        ) from error


def _context() -> ssl.SSLContext:
    """Takes every size of key: which ones are good enough is said by the two sides of a connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context


def _reason(error: OSError | ValueError) -> str:
    return (isinstance(error, ssl.SSLError) and error.reason) or str(error)


def _invalid(text: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(text, metadata={"key": "tls"})
