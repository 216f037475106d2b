"""What a node said of itself, as facts. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Interface
from typing import Any, TypeVar

from roles.driver.state import Package
from roles.driver.state import packages as listed
from roles.images.state import Stock, stock
from roles.memory.state import active
from roles.preflight.identity import vendor_of
from sparkrack.fleet import Half
from sparkrack.fleet.errors import one_line, shown
from sparkrack.status.question import Answer

Value = TypeVar("Value")

PLACES = {f"{domain}:01:00.{port}": (port, index) for index, domain in enumerate(("0000", "0002")) for port in (0, 1)}
"""Where the functions of a GB10's ConnectX-7 are on PCIe, and which half of which port each is."""


@dataclass(frozen=True)
class HalfFacts:
    """One half of a port. `up`: it is switched on and has a carrier. `addresses` are its own or those of the VLAN on
    it, link-local ones left out; `vlan`: that VLAN's number; `device`: what holds the addresses. `mtu` in bytes."""

    mac: str
    up: bool
    mtu: int
    addresses: tuple[IPv4Interface, ...] = ()
    vlan: int | None = None
    device: str = ""


@dataclass(frozen=True)
class NodeFacts:
    """One node. What could not be told is None or empty, and `untold` says why, by question."""

    name: str
    hostname: str | None = None
    vendor: str | None = None
    maker: str = ""
    halves: Mapping[Half, HalfFacts] = field(default_factory=dict)
    strange: tuple[str, ...] = ()
    """Functions of a ConnectX card that have another name or place than those of a GB10, in words."""
    links: str = ""
    """What `ip -d -j address` printed."""
    neighbours: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The MAC addresses heard on each interface, in lower case."""
    management: str | None = None
    """The interface of the default route."""
    swap: bool | None = None
    overcommit: int | None = None
    min_free: int | None = None
    kernel: str | None = None
    driver: str | None = None
    packages: tuple[Package, ...] | None = None
    engine: str | None = None
    """What docker says its version is, or "none"."""
    daemon: Mapping[str, str] | None = None
    ceiling: str | None = None
    images: Stock | None = None
    """None when it could not be told; empty without an engine."""
    sshd: Mapping[str, str] | None = None
    naming: str = ""
    whole: str = ""
    rendering: str = ""
    """How its netplan files name interfaces of the fabric; see `roles.fabric.adopt`."""
    hotplug: bool | None = None
    untold: Mapping[str, str] = field(default_factory=dict)


def understood(name: str, said: Mapping[str, Answer]) -> NodeFacts:
    """What a node answered to `sparkrack.discovery.asking.script`. Never raises: a question that was not answered, or
    not as its tool does, is in `untold`."""
    reading = _Reading(said)
    devices = reading.told("links", _devices) or {}
    makers = [reading.told(question, _first) or "" for question in ("maker", "board")]
    return NodeFacts(
        name=name,
        hostname=reading.told("hostname", _hostname),
        vendor=vendor_of(*makers),
        maker=makers[0],
        halves=_halves(name, devices),
        strange=reading.told("functions", _strange) or (),
        links=said["links"].text if devices else "",
        neighbours=reading.told("neighbours", lambda answer: heard(answer.text)) or {},
        management=reading.told("route", _route),
        swap=reading.told("swap", lambda answer: bool(active(answer.text))),
        overcommit=reading.told("overcommit", _number),
        min_free=reading.told("minfree", _number),
        kernel=reading.told("kernel", _first),
        driver=reading.told("driver", _driver),
        packages=reading.told("packages", lambda answer: tuple(listed(answer.text))),
        engine=reading.told("engine", _first),
        daemon=reading.told("daemon", _daemon),
        ceiling=reading.told("ceiling", _first),
        images=reading.told("images", lambda answer: stock(answer.text)),
        sshd=reading.told("sshd", lambda answer: dict(line.lower().split(None, 1) for line in answer.lines)),
        naming=reading.told("naming", lambda answer: answer.text) or "",
        whole=reading.told("whole", lambda answer: answer.text) or "",
        rendering=reading.told("rendering", lambda answer: answer.text) or "",
        hotplug=reading.told("hotplug", lambda answer: {"yes": True, "no": False}[_first(answer)]),
        untold=reading.untold,
    )


def hearing(facts: NodeFacts, output: str) -> NodeFacts:
    """The same with the neighbours it had after everybody spoke; as it was when that is no answer."""
    try:
        return replace(facts, neighbours=heard(output))
    except ValueError:
        return facts


def heard(text: str) -> dict[str, frozenset[str]]:
    """The MAC addresses on each interface, from `ip -j neigh`. Raises ValueError when it is not what `ip` prints."""
    found: dict[str, set[str]] = {}
    for row in _rows(text):
        if row.get("lladdr") and "FAILED" not in row.get("state", ()):
            found.setdefault(str(row.get("dev")), set()).add(str(row["lladdr"]).lower())
    return {name: frozenset(macs) for name, macs in found.items()}


class _Reading:
    def __init__(self, said: Mapping[str, Answer]) -> None:
        self.said = said
        self.untold: dict[str, str] = {}

    def told(self, question: str, make: Callable[[Answer], Value]) -> Value | None:
        """What an answer means; None when it means nothing, with the reason noted."""
        answer = self.said.get(question)
        try:
            if answer is None:
                self.untold[question] = "was not answered"
            elif answer.code:
                self.untold[question] = f"its tool ended with {answer.code}"
            else:
                return make(answer)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as fault:
            self.untold[question] = shown(fault) if isinstance(fault, ValueError) else "cannot be understood"
        return None


def _first(answer: Answer) -> str:
    lines = [line.strip() for line in answer.lines if line.strip() and not line.startswith("#")]
    if not lines:
        raise ValueError("says nothing")
    return one_line(lines[0])


def _hostname(answer: Answer) -> str:
    name = _first(answer).partition(".")[0]
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}", name):
        raise ValueError(f"{shown(name)} is no host name")
    return name


def _number(answer: Answer) -> int:
    text = _first(answer)
    if not re.fullmatch(r"[0-9]{1,12}", text):
        raise ValueError(f"{shown(text)} is no number")
    return int(text)


def _driver(answer: Answer) -> str:
    text = _first(answer)
    if not re.fullmatch(r"[0-9][0-9A-Za-z.+~-]{0,62}", text):
        raise ValueError(f"{shown(text)} is no version")
    return text


def _rows(text: str) -> list[dict[str, Any]]:
    rows = json.loads(text or "[]")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("is no list")
    return rows


def _route(answer: Answer) -> str | None:
    return next((str(row["dev"]) for row in _rows(answer.text) if "dev" in row), None)


def _strange(answer: Answer) -> tuple[str, ...]:
    found = []
    for line in answer.lines:
        name, place = line.split()
        known = PLACES.get(place)
        if known is None or Half("", *known).interface != name:
            found.append(f"{shown(name)} at PCIe {shown(place)}")
    return tuple(found)


def _daemon(answer: Answer) -> dict[str, str]:
    pairs = (line.split(":", 1) for line in answer.lines)
    return {name.strip().strip('"'): value.strip().strip('"') for name, value in pairs}


def _devices(answer: Answer) -> dict[str, Any]:
    found = {row["ifname"]: row for row in _rows(answer.text) if row}
    for row in found.values():
        for key in ("flags", "mtu", "addr_info"):
            row[key]
    return found


def _halves(name: str, devices: Mapping[str, Any]) -> dict[Half, HalfFacts]:
    found = {}
    for half in (Half(name, port, index) for port in (0, 1) for index in (0, 1)):
        row = devices.get(half.interface)
        if row is not None:
            found[half] = _half(half, row, devices)
    return found


def _half(half: Half, row: Mapping[str, Any], devices: Mapping[str, Any]) -> HalfFacts:
    facts = HalfFacts(
        mac=str(row.get("address", "")).lower(),
        up="UP" in row["flags"] and "NO-CARRIER" not in row["flags"],
        mtu=int(row["mtu"]),
        addresses=_addresses(row),
        device=half.interface,
    )
    tagged = [
        device
        for device in devices.values()
        if device.get("link") == half.interface and device.get("linkinfo", {}).get("info_kind") == "vlan"
    ]
    if facts.addresses or len(tagged) != 1:
        return facts
    (device,) = tagged
    number = int(device["linkinfo"]["info_data"]["id"])
    return replace(facts, addresses=_addresses(device), vlan=number, device=str(device["ifname"]))


def _addresses(row: Mapping[str, Any]) -> tuple[IPv4Interface, ...]:
    own = (f"{one['local']}/{one['prefixlen']}" for one in row["addr_info"] if one.get("family") == "inet")
    return tuple(one for one in map(IPv4Interface, own) if not one.ip.is_link_local)
