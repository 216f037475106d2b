"""The secrets that a rack file refers to, each with its position in the file."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from core.model import yaml_reader
from core.model.errors import Path as Place
from core.model.errors import format_path, printable_line
from core.model.fields import Section
from core.model.role import roles
from core.model.schema import Rack
from core.model.secrets import SecretError, SecretRef
from core.util import regular_file

_LARGEST = 1024 * 1024
_NOTIFY = ("watch", "notify")
_CERTIFICATE_KEY = ("certificate", "key")


@dataclass(frozen=True)
class DeclaredSecret:
    """A reference to a secret and its path in the rack file. created: bootstrap creates the file if it is missing."""

    path: Place
    ref: SecretRef
    created: bool = False

    @property
    def missing(self) -> bool:
        """Whether the file that it names does not exist."""
        return self.ref.file is not None and not self.ref.file.exists()


def declared_secrets(rack: Rack) -> Iterator[DeclaredSecret]:
    """Yield each reference to a secret of the rack file."""
    for name, switch in rack.switches.items():
        place = ("switches", name)
        yield DeclaredSecret((*place, "password"), switch.password, created=True)
        if switch.reader:
            yield DeclaredSecret((*place, "reader", "password"), switch.reader.password)
        if switch.snmp:
            yield DeclaredSecret((*place, "snmp", "authentication"), switch.snmp.authentication)
            yield DeclaredSecret((*place, "snmp", "encryption"), switch.snmp.encryption)
    for name, model in rack.models.items():
        if model.token:
            yield DeclaredSecret(("models", name, "token"), model.token)
    for role in roles():
        if role.options:
            yield from _of_section((role.key,), getattr(rack, role.key))


def _of_section(path: Place, value: object) -> Iterator[DeclaredSecret]:
    """Yield each reference in the section of a role."""
    if isinstance(value, SecretRef):
        yield DeclaredSecret(path, value)
    elif isinstance(value, Section):
        for key in type(value).model_fields:
            yield from _of_section((*path, key), getattr(value, key))
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _of_section((*path, key), inner)


def secret_problems(rack: Rack, refs: Iterable[SecretRef]) -> Iterator[str]:
    """Resolve each of `refs`, and yield for each that fails its position in the rack file, the reason and the fix."""
    positions = {secret.ref: secret for secret in declared_secrets(rack)}
    for ref in dict.fromkeys(refs):
        try:
            ref.resolve()
        except SecretError as error:
            secret = positions.get(ref)
            why = missing_file(secret) if secret and secret.missing else str(error)
            yield f"{position(rack.source, secret.path)}: {why}" if secret else why


def secret_value(rack: Rack, ref: SecretRef) -> str:
    """Fetch a secret. Raises ValueError when that fails; the message does not have it."""
    fault = ""
    try:
        return ref.resolve().get_secret_value()
    except SecretError as error:
        fault = next(iter(secret_problems(rack, [ref])), str(error))
    raise ValueError(fault)


def secret_position(rack: Rack, ref: SecretRef) -> str:
    """Return `file:line: path` of the first reference to a secret in the rack file."""
    return next((position(rack.source, one.path) for one in declared_secrets(rack) if one.ref == ref), str(ref))


def missing_file(secret: DeclaredSecret) -> str:
    """Return what to do about the file of a secret that does not exist."""
    if secret.created:
        return f"{secret.ref} does not exist; bootstrap creates it"
    file = shlex.quote(str(secret.ref.file))
    if secret.path[0] == "models":
        return f"{secret.ref} does not exist; put the token of the hub there: (umask 077; cat > {file})"
    if secret.path[:2] == _NOTIFY:
        return f"{secret.ref} does not exist; put the URL or the password there: (umask 077; cat > {file})"
    if secret.path[-2:] == _CERTIFICATE_KEY:
        return f"{secret.ref} does not exist; put the private key of the certificate there: (umask 077; cat > {file})"
    return f"{secret.ref} does not exist; create it: (umask 077; openssl rand -hex 24 > {file})"


def position(file: Path, path: Place) -> str:
    """Return `file:line: path` of a value of a rack file; without the line if the file cannot be read."""
    try:
        document = yaml_reader.parse(regular_file.read_bytes(file, _LARGEST).decode())
    except (OSError, ValueError):
        return f"{printable_line(str(file))}: {format_path(path)}"
    return f"{printable_line(str(file))}:{document.line(path)}: {format_path(path)}"
