"""Parsers of what `ip -j` and `ethtool` print about links. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_HEADER = re.compile(r"^Settings for (\S+):$", re.MULTILINE)


@dataclass(frozen=True)
class VlanLink:
    """A VLAN device: its number, its protocol, and the interface that carries it (None: of another namespace)."""

    number: int
    protocol: str
    parent: str | None


@dataclass(frozen=True)
class IpLink:
    """A network interface as `ip -j` prints it. `mac`: in lower case, "" for none. `addresses`: IPv4 with prefix
    length, in ip's order. `flags`, `mtu` (bytes) and `addresses` are None when they are missing. `vlan` needs `ip -d`.
    """

    mac: str
    flags: frozenset[str] | None
    mtu: int | None
    addresses: tuple[str, ...] | None
    vlan: VlanLink | None


def parse_ip_rows(text: str) -> list[dict[str, Any]]:
    """Parse the rows that any `ip -j` command prints; empty ones are left out. Raises ValueError for any other text."""
    rows = json.loads(text)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("is not a list")
    return [row for row in rows if row]


def parse_ip_links(text: str) -> dict[str, IpLink]:
    """Parse interfaces by name, from `ip -d -j address` or `ip -j link`. Raises ValueError for any other text, and when
    one of the interfaces is described in an unknown form.
    """
    try:
        return {row["ifname"]: _ip_link(row) for row in parse_ip_rows(text)}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not what `ip` prints ({error!r})") from None


def _ip_link(row: Mapping[str, Any]) -> IpLink:
    if not isinstance(row["ifname"], str):
        raise TypeError("ifname")
    flags, mtu, info, vlan = row.get("flags"), row.get("mtu"), row.get("linkinfo", {}), None
    if mtu is not None and not isinstance(mtu, int):
        raise TypeError("mtu")
    if info.get("info_kind") == "vlan":
        data = info["info_data"]
        vlan = VlanLink(int(data["id"]), str(data["protocol"]), str(row["link"]) if "link" in row else None)
    addresses = None
    if "addr_info" in row:
        inet = (one for one in row["addr_info"] if one["family"] == "inet")
        addresses = tuple(f"{one['local']}/{one['prefixlen']}" for one in inet)
    mac = str(row.get("address", "")).lower()
    return IpLink(mac, None if flags is None else frozenset(map(str, flags)), mtu, addresses, vlan)


@dataclass(frozen=True)
class EthtoolReport:
    """What ethtool prints of one interface: link, speed and FEC in its own words; None for what it does not print.
    `link` may have the reason why there is none, as in "no (No cable)".
    """

    link: str | None
    speed: str | None
    fec: str | None

    @property
    def carrier(self) -> bool | None:
        """Whether there is a link; None when that is unknown."""
        return {"yes": True, "no": False}.get((self.link or "").partition(" ")[0])

    @property
    def mbps(self) -> int | None:
        """Speed in Mbit/s; None when there is none, or it is unknown."""
        match = re.fullmatch(r"(\d{1,7})Mb/s", self.speed or "", re.ASCII)
        return int(match[1]) if match else None


def parse_ethtool(text: str) -> EthtoolReport:
    """Parse what `ethtool NAME` printed, with what `ethtool --show-fec NAME` printed after it, if that was asked."""
    fields = dict(line.strip().split(": ", 1) for line in text.splitlines() if ": " in line.strip())
    # Which of the two it is depends on the release of ethtool.
    fec = next((fields[name] for name in ("Active FEC encoding", "Active FEC encodings") if name in fields), None)
    return EthtoolReport(fields.get("Link detected"), fields.get("Speed"), fec and fec.strip())


def parse_ethtool_of_all(text: str) -> dict[str, EthtoolReport]:
    """Parse what `ethtool` printed of several interfaces one after the other, by interface. Raises ValueError for text
    before the first of its headers.
    """
    before, *sections = _HEADER.split(text)
    if before.strip():
        raise ValueError(f"unexpected output of ethtool: {before.strip()[:60]!r}")
    return {name: parse_ethtool(body) for name, body in zip(sections[::2], sections[1::2], strict=True)}
