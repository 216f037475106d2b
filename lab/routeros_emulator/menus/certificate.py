"""/certificate: templates, and the certificates that the unit makes of them.

Properties, their defaults and that a removed CA takes what it issued with it: MikroTik manual, 'Certificates'.
Arguments: schema of RouterOS 7.23. Certificates are outside safe mode and history (MikroTik manual,
'Configuration management'). Inferred: the wordings of refusals, the rows that ``sign`` streams, and that a
certificate, once signed, keeps everything but its name, ``trusted`` and ``trust-store``.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Iterator

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from lab.routeros_emulator import durations
from lab.routeros_emulator.argument_types import Bool, Enum, Integer, Text, Words
from lab.routeros_emulator.certificate_authority import (
    CURVES,
    DIGESTS,
    USAGES,
    Identity,
    alternatives,
    issue,
    subject_of,
)
from lab.routeros_emulator.device import CERTIFICATE as PATH
from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.errors import failure, missing, no_such_item, unknown_parameter
from lab.routeros_emulator.menu import FULL, EmulatedField, EmulatedMenu, EmulatedRow, Values, spell_id
from lab.routeros_emulator.request import Call, Stream
from lab.routeros_emulator.store import StoreAction, StoreChange

_USAGE = "digital-signature,key-encipherment,data-encipherment,key-cert-sign,crl-sign,tls-server,tls-client"
_STORES = """
    all ipsec wpa-eap capsman fetch sstp ovpn mqtt email netwatch radius container userman lora openflow tr069 dot1x
    dns www api reverse-proxy
"""
_STAYS_OPEN = frozenset({"name", "trusted", "trust-store"})
_SIGN = """
    number numbers .id ca ca-crl-host name once duration interval as-value without-paging freeze-frame-interval
"""

FIELDS = (
    EmulatedField("name", Text()),
    EmulatedField("common-name", Text(), required=True),
    EmulatedField("country", Text(), clears=True),
    EmulatedField("state", Text(), clears=True),
    EmulatedField("locality", Text(), clears=True),
    EmulatedField("organization", Text(), clears=True),
    EmulatedField("unit", Text(), clears=True),
    EmulatedField("subject-alt-name", Text(), ""),
    EmulatedField("key-size", Enum(("1024", "1536", "2048", "4096", "8192", *CURVES)), "2048"),
    EmulatedField("digest-algorithm", Enum(("md5", "sha1", *DIGESTS)), "sha256"),
    EmulatedField("days-valid", Integer(1, 36500), "365"),
    EmulatedField("key-usage", Words(USAGES), _USAGE),
    EmulatedField("trusted", Bool(), "false"),
    EmulatedField("trust-store", Words(tuple(_STORES.split())), "all", since=(7, 23)),
    # The issuer's id; rows show its name.
    EmulatedField("ca", Text(), fixed=True),
    # Marks the certificate that the emulator's configuration brings along.
    EmulatedField("configured", Bool(), fixed=True, secret=True),
)


def _factory_rows(device: EmulatedDevice) -> Iterator[Values]:
    """Nothing from the box; the configured certificate is one that was made before the emulator began."""
    identity = device.configured_identity()
    if identity is not None:
        subject = identity.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        defaults = {f.name: f.default for f in FIELDS if f.default is not None}
        subject_fields = {
            "name": "api-ssl",
            "common-name": str(subject[0].value) if subject else "",
            "configured": "true",
        }
        key = identity.key
        size = str(key.key_size) if isinstance(key, rsa.RSAPrivateKey) else _curve_name(key.curve.name)
        yield defaults | subject_fields | {"key-size": size}


def _curve_name(name: str) -> str:
    """OpenSSL's name of a curve, as RouterOS has it."""
    return "prime256v1" if name == "secp256r1" else name


def _show_row(device: EmulatedDevice, row: EmulatedRow) -> Values:
    identity = device.vault.get(row.id)
    shown = {"key-type": "ec" if row.values["key-size"] in CURVES else "rsa"}
    if "ca" in row.values:
        issuer = device.store.find(PATH, row.values["ca"])
        shown["ca"] = issuer.values["name"] if issuer else row.values["ca"]
    flags = {"private-key": "false", "authority": "false", "issued": "false", "expired": "false"}
    flags |= {"crl": "false", "smart-card-key": "false", "revoked": "false"}
    return shown | flags | (_show_identity(identity, "ca" in row.values) if identity else {})


def _show_identity(identity: Identity, issued: bool) -> Values:
    made = identity.certificate
    left = made.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    authority = made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca if _has_ca(made) else False
    return {
        "serial-number": f"{made.serial_number:x}".upper(),
        "fingerprint": made.fingerprint(hashes.SHA256()).hex(),
        "skid": _subject_key_id(made),
        "invalid-before": made.not_valid_before_utc.strftime("%Y-%m-%d %H:%M:%S"),
        "invalid-after": made.not_valid_after_utc.strftime("%Y-%m-%d %H:%M:%S"),
        "expires-after": durations.spell(max(int(left.total_seconds()), 0)),
        "private-key": "true",
        "authority": "true" if authority else "false",
        "issued": "true" if issued else "false",
        "expired": "true" if left.total_seconds() <= 0 else "false",
    }


def _has_ca(made: x509.Certificate) -> bool:
    return any(isinstance(extension.value, x509.BasicConstraints) for extension in made.extensions)


def _subject_key_id(made: x509.Certificate) -> str:
    found = (extension.value for extension in made.extensions)
    return next((value.digest.hex() for value in found if isinstance(value, x509.SubjectKeyIdentifier)), "")


def _check_row(device: EmulatedDevice, row: EmulatedRow, old: EmulatedRow | None) -> None:
    values = row.values
    if old is None:
        # A copy is a new template, whatever it was copied from.
        values.pop("ca", None)
        values.pop("configured", None)
    if "name" not in values:
        taken = {other.values["name"] for other in device.store.rows(PATH)}
        values["name"] = next(name for n in range(1, len(taken) + 2) if (name := f"cert{n}") not in taken)
    if not values["name"]:
        raise failure("certificate name can not be empty")
    if old is not None and device.vault.get(old.id) is not None:
        if any(values.get(f.name) != old.values.get(f.name) for f in FIELDS if f.name not in _STAYS_OPEN):
            raise failure("can not change a signed certificate")
        return
    try:
        subject_of(values)
        alternatives(values["subject-alt-name"])
    except ValueError as error:
        raise failure(f"invalid certificate template: {error}") from None


def _list_issued(device: EmulatedDevice, row: EmulatedRow) -> list[tuple[str, EmulatedRow]]:
    """Return the certificates that a CA has issued, and those that these have issued."""
    issued = [other for other in device.store.rows(PATH) if other.values.get("ca") == spell_id(row.id)]
    return [(PATH, other) for other in issued] + [pair for other in issued for pair in _list_issued(device, other)]


def _sign_template(call: Call) -> Stream:
    """Make key and certificate of a template. Refusals come before the first row."""
    device, given = call.device, call.sentence.attributes
    for name in given:
        if name not in _SIGN.split():
            raise unknown_parameter(name)
    wanted = given.get("number") or given.get("numbers") or given.get(".id")
    if not wanted:
        raise missing("number")
    row = device.store.find(PATH, wanted)
    if row is None:
        raise no_such_item()
    if device.vault.get(row.id) is not None:
        raise failure("certificate is already signed")
    if row.values["digest-algorithm"] not in DIGESTS:
        raise failure(f"{row.values['digest-algorithm']} is not a digest to sign with")
    name = given.get("name") or row.values["name"]
    other = device.store.find(PATH, name)
    if other is not None and other.id != row.id:
        raise failure("certificate with the same name already exists")
    return _stream_signing(call, row, name, _find_issuer(device, given["ca"]) if given.get("ca") else None)


def _find_issuer(device: EmulatedDevice, name: str) -> tuple[int, Identity]:
    row = device.store.find(PATH, name)
    identity = device.vault.get(row.id) if row is not None else None
    if row is None or identity is None:
        raise failure("CA certificate not found or has no private key")
    if "key-cert-sign" not in row.values["key-usage"].split(","):
        raise failure("CA certificate may not sign certificates")
    return row.id, identity


async def _stream_signing(call: Call, row: EmulatedRow, name: str, issuer: tuple[int, Identity] | None) -> Stream:
    yield {"progress": "signing"}
    # Making an RSA key takes long enough to keep every other session waiting.
    identity = await asyncio.to_thread(issue, row.values, issuer[1] if issuer else None)
    device = call.device
    row = device.store.get(PATH, row.id)
    device.vault.put(row.id, identity)
    signed = row.values | {"name": name} | ({"ca": spell_id(issuer[0])} if issuer else {})
    changes = [*device.store.followers(call.menu, row, signed), StoreChange(PATH, row.id, row.values, signed)]
    device.store.apply(StoreAction("certificate signed", call.client.owner, device.clock.stamp(), tuple(changes)))
    yield {"progress": "done"}


CERTIFICATE = EmulatedMenu(
    PATH,
    FIELDS,
    verbs=(FULL | {"unset"}) - {"enable", "disable"},
    unsets=frozenset(),
    named_by="name",
    unique=((("name",), "certificate with the same name already exists"),),
    factory=_factory_rows,
    show=_show_row,
    check=_check_row,
    along=_list_issued,
    actions={"sign": _sign_template},
    protected=frozenset({"sign"}),
    outside=True,
)
