"""Machines that announce themselves: by mDNS, by LLDP, and by MikroTik's own protocol. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address

from pydantic import BaseModel, Field, ValidationError

from core.model.errors import printable_line

SSH_SERVICE = "_ssh._tcp.local."
"""What a machine announces that offers ssh (RFC 6763; avahi's own service file is called ssh.service)."""

MNDP_PORT = 5678
"""UDP; an empty broadcast request makes units answer at once (MikroTik manual, 'Neighbor discovery')."""
# claim: discovery.mndp
MNDP_REQUEST = bytes(4)
_MAC, _IDENTITY, _BOARD, _IPV4 = 1, 5, 12, 17


@dataclass(frozen=True)
class Advertised:
    """A machine on the network: the name, address and description that it announces."""

    name: str
    address: str
    what: str = ""


class _LldpValue(BaseModel):
    value: str = ""


class _LldpChassis(BaseModel):
    name: tuple[_LldpValue, ...] = ()
    descr: tuple[_LldpValue, ...] = ()
    addresses: tuple[_LldpValue, ...] = Field((), alias="mgmt-ip")


class _LldpInterface(BaseModel):
    chassis: tuple[_LldpChassis, ...] = ()


class _LldpInterfaces(BaseModel):
    interface: tuple[_LldpInterface, ...] = ()


class _LldpNeighbours(BaseModel):
    """What is read of `lldpcli -f json0`: unlike `-f json`, each value is a list, also where there is one or none."""

    lldp: tuple[_LldpInterfaces, ...] = ()


def mdns(service: str, host: str, addresses: Iterable[str]) -> tuple[Advertised, ...]:
    """A machine that offers ssh: once for each of its IPv4 addresses; nothing when its host name is none.

    `service`: the name of the announcement, `spark-1a2b._ssh._tcp.local.`; `host`: `spark-1a2b.local.`
    """
    name = service.removesuffix(f".{SSH_SERVICE}")
    label = host.removesuffix(".").removesuffix(".local") or name
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}", label):
        return ()
    return tuple(Advertised(label, one, printable_line(name)) for one in addresses if _is_address(one))


def lldp(output: str) -> tuple[Advertised, ...]:
    """MikroTik units, from `lldpcli -f json0 show neighbors`; nothing when this is not such a document."""
    try:
        neighbours = _LldpNeighbours.model_validate_json(output)
    except ValidationError:
        return ()
    found: dict[str, Advertised] = {}
    for chassis in (one for side in neighbours.lldp for port in side.interface for one in port.chassis):
        name, what = (values[0].value if values else "" for values in (chassis.name, chassis.descr))
        address = next((one.value for one in chassis.addresses if _is_address(one.value)), None)
        if "mikrotik" in what.lower() and address:
            found.setdefault(address, Advertised(printable_line(name), address, printable_line(what)))
    return tuple(found.values())


def mndp(packet: bytes, sender: str) -> Advertised | None:
    """A unit by a packet of MikroTik's discovery protocol; None for anything else.

    Four bytes, then parts of two bytes kind, two bytes length and the value (Wireshark's dissector).
    """
    parts: dict[int, bytes] = {}
    rest = packet[4:]
    while len(rest) >= 4:
        kind, length = int.from_bytes(rest[:2], "big"), int.from_bytes(rest[2:4], "big")
        if len(rest) < 4 + length:
            return None
        parts.setdefault(kind, rest[4 : 4 + length])
        rest = rest[4 + length :]
    if rest or len(parts.get(_MAC, b"")) != 6:
        return None
    own = parts.get(_IPV4, b"")
    address = str(IPv4Address(own)) if len(own) == 4 else sender
    if not _is_address(address):
        return None
    return Advertised(_printable_text(parts.get(_IDENTITY, b"")), address, _printable_text(parts.get(_BOARD, b"")))


def _printable_text(raw: bytes) -> str:
    return printable_line(raw.decode(errors="backslashreplace"))


def _is_address(text: str) -> bool:
    try:
        return not IPv4Address(text).is_unspecified
    except ValueError:
        return False
