"""Machines that make themselves known: what avahi, lldpd and MikroTik's own protocol tell of them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address

from sparkrack.fleet.errors import one_line

MNDP_PORT = 5678
"""UDP; an empty request to everybody makes units answer at once (MikroTik manual, 'Neighbor discovery')."""
MNDP_REQUEST = bytes(4)
_MAC, _IDENTITY, _BOARD, _IPV4 = 1, 5, 12, 17
_OCTAL = re.compile(r"\\(\d{3})")


@dataclass(frozen=True)
class Near:
    """Somebody near: the name it gives itself, its address, and what it says it is."""

    name: str
    address: str
    what: str = ""


def avahi(output: str) -> tuple[Near, ...]:
    """Who offers ssh, from `avahi-browse -rpt _ssh._tcp`; lines of another kind are left out."""
    found: dict[str, Near] = {}
    for line in output.splitlines():
        parts = line.split(";")
        if len(parts) < 9 or parts[0] != "=" or parts[2] != "IPv4" or not _is_address(parts[7]):
            continue
        # avahi writes every byte that may stand in its way as a backslash and three decimal digits.
        name = _OCTAL.sub(lambda match: chr(int(match[1])), parts[3])
        host = parts[6].removesuffix(".local") or name
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}", host):
            found.setdefault(parts[7], Near(host, parts[7], one_line(name)))
    return tuple(found.values())


def lldp(output: str) -> tuple[Near, ...]:
    """MikroTik units, from `lldpcli -f keyvalue show neighbors`."""
    chassis: dict[str, dict[str, str]] = {}
    for line in output.splitlines():
        path, _, value = line.partition("=")
        port, _, key = path.partition(".chassis.")
        if key:
            chassis.setdefault(port, {}).setdefault(key, value)
    found: dict[str, Near] = {}
    for said in chassis.values():
        address, what = said.get("mgmt-ip", ""), said.get("descr", "")
        if "mikrotik" in what.lower() and _is_address(address):
            found.setdefault(address, Near(one_line(said.get("name", "")), address, one_line(what)))
    return tuple(found.values())


def mndp(packet: bytes, sender: str) -> Near | None:
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
    return Near(_text(parts.get(_IDENTITY, b"")), address, _text(parts.get(_BOARD, b"")))


def _text(raw: bytes) -> str:
    return one_line(raw.decode(errors="backslashreplace"))


def _is_address(text: str) -> bool:
    try:
        return not IPv4Address(text).is_unspecified
    except ValueError:
        return False
