"""What nodes and switches say of the cables, and how a node is asked. Pure: somebody else does the asking."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparkrack.fleet import Half, Port, Rack
from switch.ends import End, answer, question
from switch.menus import Row

_MARK = "sparkrack-devices"


@dataclass(frozen=True)
class Device:
    """A network device of a node: MTU in bytes, IPv4 addresses with prefix, VLAN; None is what was not told, or for
    the VLAN that it is none."""

    mtu: int | None
    addresses: tuple[str, ...]
    vlan: int | None


@dataclass(frozen=True)
class NodeSaid:
    """What a node says of the halves of its cabled ports, and of all its network devices by name."""

    ends: Mapping[Half, End]
    devices: Mapping[str, Device]


@dataclass(frozen=True)
class SwitchSaid:
    """What a switch says: the monitor and the settings of each leg by its interface, and behind which interface each
    MAC address (lower case) was heard."""

    links: Mapping[str, Row]
    ethernet: Mapping[str, Row]
    hosts: Mapping[str, str]


@dataclass(frozen=True)
class Seen:
    """What each machine said, or why it could not be asked, in one line; who is not in it was not asked."""

    nodes: Mapping[str, NodeSaid | str] = field(default_factory=dict)
    switches: Mapping[str, SwitchSaid | str] = field(default_factory=dict)


def script(rack: Rack, ports: Sequence[Port]) -> str:
    """The one shell script that a node is asked with; it also makes the node speak, so that the switch hears it."""
    return f"{question(rack, ports)}\necho {_MARK}\nip -d -j address show"


def understood(output: str, ports: Sequence[Port]) -> NodeSaid:
    """What a node answered to `script`. ValueError when it is no answer to it."""
    first, _, rest = output.partition(f"{_MARK}\n")
    try:
        devices = {link["ifname"]: _device(link) for link in json.loads(rest) if link}
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ValueError("`ip -j address show` gives no list of devices") from None
    return NodeSaid(answer(first, ports), devices)


def _device(link: Mapping[str, Any]) -> Device:
    mtu, info = link.get("mtu"), link.get("linkinfo", {})
    vlan = info.get("info_data", {}).get("id") if info.get("info_kind") == "vlan" else None
    addresses = (f"{one['local']}/{one['prefixlen']}" for one in link.get("addr_info", ()) if one["family"] == "inet")
    return Device(mtu if isinstance(mtu, int) else None, tuple(addresses), vlan)
