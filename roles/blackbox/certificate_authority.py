"""The CA of a rack for what leaves its nodes: two files beside rack.yaml on the operator's machine.

The certificate of the CA is public. Its key signs the certificates of nodes and never leaves the machine; a run in
which no node needs a certificate does not read it. The key of a node is made on the node and never read from it.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_public_key,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from core.model.errors import printable_line
from core.util import regular_file
from core.util.atomic_file import write_atomic
from core.util.certificate_builder import certificate_builder
from roles.blackbox import journal_stream

CERTIFICATE = "blackbox-ca.pem"
KEY = "blackbox-ca.key"
CA_DAYS = 7300
"""Days for which a CA is valid. All nodes trust it by itself, so another one concerns all of them."""
NODE_DAYS = 730
"""Days for which the certificate of a node is valid, at most until the end of the CA."""
RENEWED = timedelta(days=180)
"""The certificate of a node is renewed so long before its end: a rack is applied at least twice a year."""
_LARGEST = 64 * 1024
ANOTHER_CA = (
    f"remove {CERTIFICATE} and {KEY} beside rack.yaml and {journal_stream.AUTHORITY} on every node; the next run makes "
    "another CA, and new certificates for all nodes"
)
"""What replaces a CA. The file of a node has to be removed by hand: a machine without the CA makes no second one."""


@dataclass(frozen=True)
class RackAuthority:
    """The CA of one rack, as its two files have it. Properties read them once."""

    folder: Path
    rack: str

    @cached_property
    def pem(self) -> bytes | None:
        """The certificate of the CA; None without one. Raises ValueError when it cannot be used."""
        content = _read_content(self.folder / CERTIFICATE)
        if content is None:
            return None
        name = _shown_path(self.folder / CERTIFICATE)
        try:
            end = x509.load_pem_x509_certificate(content).not_valid_after_utc - RENEWED
        except ValueError:
            raise ValueError(f"{name} has no certificate in PEM; {ANOTHER_CA}") from None
        if datetime.now(UTC) > end:
            raise ValueError(f"{name} has to be replaced since {end:%Y-%m-%d}, before it expires; {ANOTHER_CA}")
        return content

    @property
    def there(self) -> bool:
        """Whether the key of the CA is on this machine. Does not read it."""
        return (self.folder / KEY).exists()

    def signing_fault(self, trusts: bool) -> str:
        """Return why no certificate can be signed, and what is to be done; empty if one can, or a CA can be made.

        trusts: whether a node has the certificate of a CA of this rack.
        """
        elsewhere = "copy it from the machine that made it (git ignores it)"
        if self.pem is None and self.there:
            return (
                f"{_shown_path(self.folder / CERTIFICATE)} is missing and {KEY} is there; {elsewhere}, or remove {KEY}"
            )
        if self.pem is None and trusts:
            return (
                "the node has a certificate of the rack's CA, and "
                f"{_shown_path(self.folder / CERTIFICATE)} is missing; copy {CERTIFICATE} and {KEY} from the machine "
                f"that made them; if they are lost, {ANOTHER_CA}"
            )
        if self.pem is not None and not self.there:
            return (
                f"{_shown_path(self.folder / KEY)} is missing, and the node needs a certificate; {elsewhere}; if it is "
                f"lost, {ANOTHER_CA}"
            )
        try:
            _ = self._load_private_key() if self.pem is not None else None
        except ValueError as error:
            return str(error)
        return ""

    def make(self) -> None:
        """Make the CA: the key first, with mode 0600. Raises ValueError when the files cannot be written."""
        private = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"sparkrack {self.rack}"[:64])])
        made = (
            certificate_builder(subject, subject, private.public_key(), datetime.now(UTC) + timedelta(days=CA_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .sign(private, hashes.SHA256())
        )
        pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        try:
            write_atomic(self.folder / KEY, pem.decode(), 0o600)
            write_atomic(self.folder / CERTIFICATE, made.public_bytes(Encoding.PEM).decode(), 0o644)
        except OSError as error:
            raise ValueError(
                f"{_shown_path(self.folder)}: the CA cannot be written: {error.strerror or error}"
            ) from None

    def sign(self, public: bytes, node: str, address: str) -> bytes:
        """Return the certificate of a node for its public key (DER) in PEM. Raises ValueError."""
        private, ca = self._load_private_key(), x509.load_pem_x509_certificate(self.pem or b"")
        try:
            key = load_der_public_key(public)
        except (ValueError, UnsupportedAlgorithm):
            raise ValueError("the public key of the node cannot be read") from None
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise ValueError("the key of the node is not one of an elliptic curve")  # noqa: TRY004 - it is bad input
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node)])
        end = min(datetime.now(UTC) + timedelta(days=NODE_DAYS), ca.not_valid_after_utc)
        made = (
            certificate_builder(subject, ca.subject, key, end)
            .add_extension(x509.SubjectAlternativeName(_alternative_names(node, address)), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(private.public_key()), critical=False)
            .sign(private, hashes.SHA256())
        )
        return made.public_bytes(Encoding.PEM)

    def _load_private_key(self) -> ec.EllipticCurvePrivateKey:
        path = self.folder / KEY
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError as error:
            raise ValueError(f"{_shown_path(path)} cannot be read: {error.strerror or error}") from None
        if mode & 0o077:
            raise ValueError(
                f"{_shown_path(path)} can be read by other users (mode {mode:o}); chmod 600, and run again"
            )
        content = _read_content(path)
        ca = x509.load_pem_x509_certificate(self.pem or b"").public_key()
        fits, private = False, None
        try:
            private = load_pem_private_key(content or b"", None)
            fits = _public_bytes(private.public_key()) == _public_bytes(ca)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            private = None
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            name = _shown_path(path)
            raise ValueError(f"{name} is not the private key of a CA that sparkrack made")  # noqa: TRY004 - bad input
        if not fits:
            raise ValueError(
                f"{_shown_path(path)} is not the key of {CERTIFICATE}; copy both from the machine that made them"
            )
        return private


def node_fault(pem: bytes | None, ca: bytes | None, public: bytes, node: str, address: str) -> str:
    """Return why the certificate of a node is replaced; empty for one that stays.

    Args:
        pem: the certificate of the node; None without one.
        ca: the certificate of the rack's CA; None while there is none.
        public: the public key of the node, DER.
        node: its name.
        address: its management address.
    """
    if pem is None:
        return "there is none"
    try:
        found = x509.load_pem_x509_certificate(pem)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        of_key = _public_bytes(found.public_key()) == public
    except (ValueError, UnsupportedAlgorithm, x509.ExtensionNotFound):
        return "it cannot be read"
    if not of_key:
        return "it is not of the node's key"
    try:
        if ca is None:
            return "the rack has no CA"
        found.verify_directly_issued_by(x509.load_pem_x509_certificate(ca))
    except (ValueError, TypeError, InvalidSignature):
        return "it is not of the rack's CA"
    common = [attribute.value for attribute in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if common != [node] or set(names) != set(_alternative_names(node, address)):
        return f"it is not for {node} at {address}"
    if (begin := found.not_valid_before_utc) > datetime.now(UTC):
        return f"it is valid from {begin:%Y-%m-%d %H:%M} UTC on, which is later than now"
    if datetime.now(UTC) > (end := found.not_valid_after_utc) - RENEWED:
        return f"it ends on {end:%Y-%m-%d}"
    return ""


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_names(node: str, address: str) -> list[x509.GeneralName]:
    return [x509.IPAddress(IPv4Address(address)), x509.DNSName(node)]


def _public_bytes(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _read_content(path: Path) -> bytes | None:
    """The content of a file; None without one. Raises ValueError when it cannot be read."""
    try:
        return regular_file.read_bytes(path, _LARGEST)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ValueError(f"{_shown_path(path)} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _shown_path(path: Path) -> str:
    return printable_line(str(path))
