"""What every X.509 certificate has that sparkrack makes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

CLOCK_DIFFERENCE = timedelta(days=1)
"""A certificate is valid from so long before it is made: the clock of a node may be behind."""


def certificate_builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, end: datetime
) -> x509.CertificateBuilder:
    """Return an unsigned certificate with names, a random serial number, times and the identifier of its key.

    Args:
        subject: the name of its owner.
        issuer: the name of its signer; that of the owner where it is self-signed.
        key: the public key of its owner.
        end: until when it is valid, with a time zone.
    """
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - CLOCK_DIFFERENCE)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )
