"""Makes the keys and X.509 certificates that ``/certificate/sign`` asks for."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from lab.routeros_emulator.menu import Values

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

#: Values of ``key-size`` that name an elliptic curve; the others are bits of an RSA key.
CURVES: dict[str, type[ec.EllipticCurve]] = {
    "prime256v1": ec.SECP256R1,
    "secp384r1": ec.SECP384R1,
    "secp521r1": ec.SECP521R1,
}
_DIGESTS: dict[str, type[hashes.SHA256 | hashes.SHA384 | hashes.SHA512]] = {
    "sha256": hashes.SHA256,
    "sha384": hashes.SHA384,
    "sha512": hashes.SHA512,
}
DIGESTS = tuple(_DIGESTS)
_BITS = """
    digital-signature content-commitment key-encipherment data-encipherment key-agreement key-cert-sign crl-sign
    encipher-only decipher-only
"""
_USAGES = _BITS.split()
_EXTENDED: dict[str, ObjectIdentifier] = {
    "tls-server": ExtendedKeyUsageOID.SERVER_AUTH,
    "tls-client": ExtendedKeyUsageOID.CLIENT_AUTH,
    "code-sign": ExtendedKeyUsageOID.CODE_SIGNING,
    "email-protect": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "timestamp": ExtendedKeyUsageOID.TIME_STAMPING,
    "ocsp-sign": ExtendedKeyUsageOID.OCSP_SIGNING,
    "dvcs": ObjectIdentifier("1.3.6.1.5.5.7.3.10"),
}
#: Every word of ``key-usage``, in the order in which it is printed.
USAGES = (*_USAGES, *_EXTENDED)
_NAMES = {
    "common-name": NameOID.COMMON_NAME,
    "country": NameOID.COUNTRY_NAME,
    "state": NameOID.STATE_OR_PROVINCE_NAME,
    "locality": NameOID.LOCALITY_NAME,
    "organization": NameOID.ORGANIZATION_NAME,
    "unit": NameOID.ORGANIZATIONAL_UNIT_NAME,
}


@dataclass(frozen=True)
class Identity:
    """A certificate together with its private key; the key stays out of ``repr``."""

    certificate: x509.Certificate
    key: PrivateKey

    def __repr__(self) -> str:
        return f"Identity({self.certificate.subject.rfc4514_string()})"

    def pem(self) -> bytes:
        """Key and certificate in one PEM text, as an SSL context loads them."""
        key = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return key + self.certificate.public_bytes(serialization.Encoding.PEM)


def read_identity(pem: bytes) -> Identity:
    """Read what ``Identity.pem`` gave, or a certificate and its key one after the other. Raises ValueError."""
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise ValueError("neither an RSA nor an elliptic curve key")  # noqa: TRY004 - a file's fault, not a caller's
    return Identity(x509.load_pem_x509_certificate(pem), key)


def issue(template: Values, issuer: Identity | None) -> Identity:
    """Make a key, and a certificate by a template's fields, signed by ``issuer`` or by itself.

    An RSA key of many bits takes seconds. Raises ValueError for fields that make no certificate.
    """
    key = _make_key(template["key-size"])
    subject = subject_of(template)
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=int(template["days-valid"])))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    usages = set(template["key-usage"].split(","))
    builder = builder.add_extension(
        x509.BasicConstraints(ca="key-cert-sign" in usages, path_length=None), critical=True
    )
    if usages & set(_USAGES):
        builder = builder.add_extension(_make_key_usage(usages), critical=True)
    if extended := [oid for word, oid in _EXTENDED.items() if word in usages]:
        builder = builder.add_extension(x509.ExtendedKeyUsage(extended), critical=False)
    if names := alternatives(template.get("subject-alt-name", "")):
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if issuer is not None:
        parent = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key())
        builder = builder.add_extension(parent, critical=False)
    digest = _DIGESTS[template["digest-algorithm"]]()
    return Identity(builder.sign(issuer.key if issuer else key, digest), key)


def subject_of(template: Values) -> x509.Name:
    """The distinguished name that a template's fields make; ValueError for a field that X.509 does not allow."""
    return x509.Name([x509.NameAttribute(oid, template[name]) for name, oid in _NAMES.items() if template.get(name)])


def _make_key(size: str) -> PrivateKey:
    if size in CURVES:
        return ec.generate_private_key(CURVES[size]())
    return rsa.generate_private_key(public_exponent=65537, key_size=int(size))


def _make_key_usage(words: set[str]) -> x509.KeyUsage:
    agreement = "key-agreement" in words
    return x509.KeyUsage(
        digital_signature="digital-signature" in words,
        content_commitment="content-commitment" in words,
        key_encipherment="key-encipherment" in words,
        data_encipherment="data-encipherment" in words,
        key_agreement=agreement,
        key_cert_sign="key-cert-sign" in words,
        crl_sign="crl-sign" in words,
        encipher_only=agreement and "encipher-only" in words,
        decipher_only=agreement and "decipher-only" in words,
    )


def alternatives(text: str) -> list[x509.GeneralName]:
    """The names in a ``subject-alt-name``: ``DNS:``, ``IP:`` and ``email:``. Raises ValueError."""
    names: list[x509.GeneralName] = []
    for part in filter(None, text.split(",")):
        kind, _, value = part.partition(":")
        if kind == "IP":
            names.append(x509.IPAddress(ipaddress.ip_address(value)))
        elif kind == "DNS":
            names.append(x509.DNSName(value))
        elif kind == "email":
            names.append(x509.RFC822Name(value))
        else:
            raise ValueError(f"subject-alt-name {part}")
    return names
