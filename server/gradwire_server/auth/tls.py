"""TLS: loads the server's certificate, and for mTLS the authorities of clients' certificates.

New files need no restart.
"""

import logging
import ssl
from pathlib import Path
from typing import Any

import grpc

log = logging.getLogger("gradwire.server")


class TlsError(ValueError):
    """The files cannot be used."""


class Tls:
    """Certificate, key and, for mTLS, the authorities of clients' certificates: paths of PEM files.

    Every handshake checks the files' dates. Changed files are used if they are valid and fit together. Otherwise the
    log has an error, and the previous files stay in force.
    """

    def __init__(self, cert: Path, key: Path, client_ca: Path | None = None) -> None:
        """Raises TlsError, OSError."""
        self.cert, self.key, self.client_ca = cert, key, client_ca
        self._stamp = self._stat()
        self._first = self._read()

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials for a listening port."""
        changed: Any = self._changed  # None is allowed, and means no change
        return grpc.dynamic_ssl_server_credentials(self._first, changed, self.client_ca is not None)

    def _changed(self) -> grpc.ServerCertificateConfiguration | None:
        """The changed files; None if there are none. gRPC calls this for each handshake, in one of its threads."""
        try:
            stamp = self._stat()
            if stamp == self._stamp:
                return None
            self._stamp = stamp
            read = self._read()
        except (OSError, TlsError) as error:
            log.error("certificate cannot be used, the previous one stays in force: %s", error)
            return None
        log.info("certificate read", extra={"path": str(self.cert)})
        return read

    def _paths(self) -> list[Path]:
        return [path for path in (self.cert, self.key, self.client_ca) if path is not None]

    def _stat(self) -> list[tuple[int, int, int]]:
        found = [path.stat() for path in self._paths()]
        return [(each.st_mtime_ns, each.st_ino, each.st_size) for each in found]

    def _read(self) -> grpc.ServerCertificateConfiguration:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # With an empty password OpenSSL does not prompt at the terminal.
            context.load_cert_chain(self.cert, self.key, password="")
        except ssl.SSLError:
            raise TlsError(
                f"{self.cert} and {self.key} are no certificate and the key to it, without password"
            ) from None
        if self.client_ca is not None:
            try:
                context.load_verify_locations(self.client_ca)
            except ssl.SSLError:
                raise TlsError(f"{self.client_ca} holds no certificate") from None
        authorities = None if self.client_ca is None else self.client_ca.read_bytes()
        return grpc.ssl_server_certificate_configuration([(self.key.read_bytes(), self.cert.read_bytes())], authorities)
