"""A self-signed certificate for an emulated switch."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from core.util.certificate_builder import certificate_builder


def make(name: str, certificate: Path, key: Path) -> None:
    """Make a certificate for `name` that is valid for ten years, and its private key with mode 0600."""
    private = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    end = datetime.now(UTC) + timedelta(days=3650)
    made = certificate_builder(subject, subject, private.public_key(), end).sign(private, hashes.SHA256())
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(pem)
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))


def fingerprint(certificate: Path) -> str:
    """SHA-256 of the certificate (DER), in hexadecimal, as rack.yaml wants it."""
    return x509.load_pem_x509_certificate(certificate.read_bytes()).fingerprint(hashes.SHA256()).hex()
