"""Certificates made on the spot: an authority, and what it signs."""

import ipaddress
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates; its own is `path`."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        own = _builder(self._name, self._name, self._key).add_extension(constraints, critical=True)
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, file: str = "") -> tuple[Path, Path]:
        """A certificate for a principal or, under "localhost", for a server on this machine: its path and its key's."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_named(name), self._name, key)
        if name == "localhost":
            addresses = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            builder = builder.add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        cert, secret = self.folder / f"{file or name}.crt", self.folder / f"{file or name}.key"
        secret.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        cert.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        return cert, secret


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=2))
    )
