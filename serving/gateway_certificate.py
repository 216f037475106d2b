"""The certificate of the gateway: the declared one with its private key, or a self-signed one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from core.model import Rack
from core.model.declared_secrets import position
from core.model.errors import printable_line
from core.util import regular_file
from core.util.certificate_builder import certificate_builder
from serving.options import ServingCertificate, ServingGateway

DAYS = 3650
"""Days for which a self-signed certificate is valid. Clients trust it by itself, so a renewal concerns all of them."""
RENEWED = timedelta(days=30)
"""A self-signed certificate is renewed so long before its end."""
_LARGEST = 64 * 1024


def declared_pem(rack: Rack, declared: ServingCertificate, key: str) -> bytes:
    """Return the private key and the certificates as the gateway has them in one file.

    Args:
        rack: the rack, whose file messages name.
        declared: the certificate as rack.yaml has it.
        key: the private key in PEM.

    Raises:
        ValueError: they cannot be read, do not belong together, or are not valid now; no message has the key.
    """
    chain_place, key_place = (
        position(rack.source, ("serving", "gateway", "certificate", part)) for part in ("chain", "key")
    )
    file = printable_line(str(declared.chain))
    try:
        chain = regular_file.read_bytes(declared.chain, _LARGEST)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "its name has a NUL"
        raise ValueError(f"{chain_place}: {file} cannot be read: {why}; name a file with certificates in PEM") from None
    try:
        certificates = x509.load_pem_x509_certificates(chain)
        public = _public_key_bytes(certificates[0].public_key())
    except (ValueError, TypeError):
        raise ValueError(f"{chain_place}: {file} has no certificate in PEM; name a file that begins with it") from None
    fault = ""
    try:
        fits = _public_key_bytes(load_pem_private_key(key.encode(), None).public_key()) == public
    except (ValueError, TypeError):
        fault = f"{key_place}: {declared.key} is not a private key in PEM without a passphrase; write one"
    if fault:
        raise ValueError(fault)
    if not fits:
        raise ValueError(
            f"{key_place}: {declared.key} is not the key of the first certificate of {file}; write that one"
        )
    now, first = datetime.now(UTC), certificates[0]
    if now > first.not_valid_after_utc:
        raise ValueError(f"{chain_place}: {file} has expired on {first.not_valid_after_utc:%Y-%m-%d}; renew it")
    if now < first.not_valid_before_utc:
        raise ValueError(
            f"{chain_place}: {file} is valid from {first.not_valid_before_utc:%Y-%m-%d} on; wait, or renew it"
        )
    return f"{key.strip()}\n".encode() + b"".join(one.public_bytes(Encoding.PEM) for one in certificates)


def self_signed_pem(gateway: ServingGateway, address: str) -> bytes:
    """Return a new private key with a certificate for the address of the gateway and the name of its node."""
    private = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, gateway.node[:64])])
    made = (
        certificate_builder(subject, subject, private.public_key(), datetime.now(UTC) + timedelta(days=DAYS))
        .add_extension(x509.SubjectAlternativeName(_list_names(gateway, address)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem + made.public_bytes(Encoding.PEM)


def self_signed_fault(pem: bytes, gateway: ServingGateway, address: str) -> str:
    """Return why an installed certificate is replaced where rack.yaml declares none; nothing for one that stays.

    Args:
        pem: the certificate of the node; empty if it has none that belongs to its private key.
        gateway: the gateway.
        address: where it listens.
    """
    try:
        found = x509.load_pem_x509_certificate(pem)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return "there is none with its private key" if not pem else "it is not for this address"
    if found.issuer != found.subject:
        return "rack.yaml declares none"
    if set(names) != set(_list_names(gateway, address)):
        return "it is not for this address"
    if datetime.now(UTC) > (end := found.not_valid_after_utc) - RENEWED:
        return f"it ends on {end:%Y-%m-%d}"
    return ""


def _list_names(gateway: ServingGateway, address: str) -> list[x509.GeneralName]:
    return [x509.IPAddress(IPv4Address(address)), x509.DNSName(gateway.node)]


def _public_key_bytes(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
