"""Whose certificates of a store are believed."""

import ssl
from pathlib import Path
from typing import Final

import certifi
from aquifer_rpc.tls_files import TlsFiles
from urllib3.util.ssl_ import create_urllib3_context

RELOAD_INTERVAL_S: Final = 5.0


class TrustedAuthorities:
    """The authorities of a file, read again when it changes, as a TLS context for connections to come.

    A file that is half written or cannot be read is refused, and what was read before stays in use. Used by many threads at once.
    """

    def __init__(self, ca_file: Path | None, *, interval_s: float = RELOAD_INTERVAL_S) -> None:
        """Read the file; none: those of certifi, once.

        Raises:
            InvalidConfigurationError: it cannot be read.
        """
        self._files = None
        if ca_file is not None:
            self._files = TlsFiles(
                authorities=ca_file, certificates=None, key=None, interval_s=interval_s
            )
        self._made: tuple[bytes | None, ssl.SSLContext] | None = None

    def context(self) -> ssl.SSLContext:
        """The context for a new connection; looks at the file unless the last look is not an interval old."""
        authorities = None if self._files is None else self._files.current().authorities
        made = self._made
        if made is None or made[0] != authorities:
            made = self._made = (authorities, _context(authorities))
        return made[1]


def _context(authorities: bytes | None) -> ssl.SSLContext:
    context = create_urllib3_context()
    if authorities is None:
        context.load_verify_locations(certifi.where())
    else:
        # What is not ASCII stands in comments.
        context.load_verify_locations(cadata=authorities.decode("ascii", "ignore"))
    return context
