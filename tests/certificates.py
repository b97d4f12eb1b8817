"""Certificates for tests: an authority of their own, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
import itertools
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class Pair(NamedTuple):
    """A certificate and its key, as files in PEM."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority that keeps all its files in `directory`. `certificate` is what others trust."""

    def __init__(self, directory: Path, name: str = "test authority") -> None:
        self.directory, self.name = directory, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._numbers = itertools.count()
        self._key = ec.generate_private_key(ec.SECP256R1())
        directory.mkdir(parents=True, exist_ok=True)
        certificate = self._build(
            self.name,
            self._key,
            x509.BasicConstraints(ca=True, path_length=None),
            x509.KeyUsage(
                digital_signature=False,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=True,
                crl_sign=True,
                encipher_only=False,
                decipher_only=False,
            ),
        )
        self.certificate = directory / "ca.pem"
        self.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def server(self, *names: str, password: bytes | None = None) -> Pair:
        """A certificate for a server at these names and addresses; localhost and 127.0.0.1 if none are given."""
        return self._issue(names or ("localhost", "127.0.0.1"), ExtendedKeyUsageOID.SERVER_AUTH, password)

    def client(self, *names: str) -> Pair:
        """A certificate for a client with these alternative names."""
        return self._issue(names or ("prometheus.test",), ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _issue(self, names: tuple[str, ...], usage: x509.ObjectIdentifier, password: bytes | None) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._build(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])]),
            key,
            x509.BasicConstraints(ca=False, path_length=None),
            x509.SubjectAlternativeName([_general_name(name) for name in names]),
            x509.ExtendedKeyUsage([usage]),
        )
        number = next(self._numbers)
        pair = Pair(self.directory / f"{number}.pem", self.directory / f"{number}.key")
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            encryption = serialization.BestAvailableEncryption(password)
        form = serialization.PrivateFormat.PKCS8
        pair.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, encryption))
        return pair

    def _build(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *extensions: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )
        identifiers = (
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
        )
        for extension in (*extensions, *identifiers):
            critical = isinstance(extension, (x509.BasicConstraints, x509.KeyUsage))
            builder = builder.add_extension(extension, critical)
        return builder.sign(self._key, hashes.SHA256())


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
