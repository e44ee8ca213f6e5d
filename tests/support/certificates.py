"""Certificates for servers of tests: an authority of its own, and a certificate that it vouches for.

Contract: `Authority.server_pem()` is a key and a certificate for 127.0.0.1 and localhost; whoever trusts the file `ca`
trusts that server, and nobody else does.
"""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


class Authority:
    """One authority; `ca` is the file of its own certificate."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"tests' {name}")])
        made = self._builder(self._name, self._key.public_key())
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.ca = folder / f"{name}.pem"
        self.ca.write_bytes(self._signed(made))

    def server_pem(self) -> str:
        """A new key, and the certificate for it."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [
            x509.DNSName("localhost"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
        made = self._builder(subject, key.public_key()).add_extension(x509.SubjectAlternativeName(names), False)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return (private + self._signed(made)).decode()

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
        )

    def _signed(self, made: x509.CertificateBuilder) -> bytes:
        return made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
