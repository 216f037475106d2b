"""The rack file that describes what was found. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Any

from sparkrack.discovery import fabric, keeping
from sparkrack.discovery import switch as switches
from sparkrack.discovery.cables import Cables, heard_by_neighbours, infer
from sparkrack.discovery.node import NodeFacts
from sparkrack.discovery.sheet import Gap, Sheet
from sparkrack.discovery.switch import SwitchFacts
from sparkrack.fleet import Cable, Cabling, Port
from sparkrack.fleet.cabling import NODE_GBPS
from sparkrack.fleet.errors import one_line

MODEL = "CRS812-8DS-2DQ-2DDQ"
NO_CERTIFICATE = "0" * 64
"""The fingerprint of a switch that was not met yet; no certificate has it."""
UNKNOWN = "unknown"
"""Stands where a word belongs that was not found; no check lets it pass."""


@dataclass(frozen=True)
class Machine:
    """A node: its address, and what it said or why it said nothing; vendor and ports as the user gives them."""

    address: str
    facts: NodeFacts | None = None
    why: str = ""
    vendor: str | None = None
    ports: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Box:
    """A switch: how it is reached, and what it said or why it said nothing. `password`: a reference to it. `cages`:
    their splits, as the user gives them."""

    address: str
    port: int
    tls: str | None
    user: str
    password: Mapping[str, Any]
    facts: SwitchFacts | None = None
    why: str = ""
    cages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """A rack as it was found, its nodes by rank. `access` is the file's section of that name."""

    name: str
    access: Mapping[str, Any]
    nodes: Mapping[str, Machine]
    boxes: Mapping[str, Box]


def describe(found: Found, *, live: bool) -> Sheet:
    """The file. `live`: with every value that the machines have now; else only what makes this rack this one."""
    sheet = Sheet({"rack": found.name, "access": dict(found.access)})
    facts = {name: machine.facts for name, machine in found.nodes.items() if machine.facts}
    heard = [box.facts for box in found.boxes.values() if box.facts]
    cables = infer(facts.values(), heard, switched=bool(found.boxes))
    if not found.boxes:
        cables = Cables({**cables.found, **heard_by_neighbours(facts.values(), cables)}, cables.unclear)
    ends = _nodes(sheet, found, cables)
    _boxes(sheet, found, live=live)
    addresses = [machine.address for machine in found.nodes.values()]
    taken = [IPv4Address(address) for address in (*addresses, *(box.address for box in found.boxes.values()))]
    keys = fabric.keys(facts, _cabling(found, ends), bool(found.boxes), taken)
    sheet.lose(keys.beyond)
    sheet.data["fabric"] = {"mtu": 9000, **keys.data}
    for key, note in keys.notes.items():
        sheet.note(("fabric", key), note)
    for name, number in keys.hosts.items():
        sheet.data["nodes"][name]["host"] = number
    if not live:
        sheet.heads["nodes",] = [_seen(node) for node in facts.values()]
    if live and facts:
        keeping.fill(sheet, facts)
        for name, node in facts.items():
            sheet.lose(Gap(("nodes", name), f"{what} cannot be told: {why}") for what, why in node.untold.items())
    return sheet


def _seen(node: NodeFacts) -> str:
    """What a node has that `init` does not write down."""
    swap = "?" if node.swap is None else "on" if node.swap else "off"
    versions = f"driver {node.driver or '?'}, kernel {node.kernel or '?'}, docker: {node.engine or '?'}"
    return one_line(f"{node.name}: {versions}, swap {swap}, management by {node.management or '?'}")


def _nodes(sheet: Sheet, found: Found, cables: Cables) -> dict[Port, str]:
    """The section `nodes`; gives the end of each cable."""
    ends: dict[Port, str] = {}
    for name, machine in found.nodes.items():
        facts, place = machine.facts, ("nodes", name)
        entry: dict[str, Any] = {"address": machine.address, "vendor": UNKNOWN}
        sheet.section("nodes")[name] = entry
        if machine.why:
            sheet.note(place, f"not read: {machine.why}")
        if machine.vendor:
            entry["vendor"] = machine.vendor
        elif facts and facts.vendor:
            entry["vendor"] = facts.vendor
        else:
            said = f"its table of parts says {facts.maker or 'nothing'}" if facts else "it was not read"
            sheet.lack((*place, "vendor"), said)
        ports = dict(machine.ports) or _found_ports(sheet, name, cables)
        if not ports and len(found.nodes) > 1:
            sheet.lack((*place, "ports"), "where its cable ends is not told by any machine")
        entry["ports"] = dict(sorted(ports.items()))
        ends.update({Port(name, number): end for number, end in ports.items()})
        if facts:
            for strange in facts.strange:
                sheet.lack((*place, "ports"), f"{strange} is no function that a GB10 has")
    return ends


def _found_ports(sheet: Sheet, name: str, cables: Cables) -> dict[int, str]:
    ports = {port.number: cabled for port, cabled in cables.found.items() if port.node == name}
    for port, why in cables.unclear.items():
        if port.node == name:
            sheet.lack(("nodes", name, "ports"), f"port {port.number} {why}")
    for cabled in dict.fromkeys(ports.values()):
        sheet.note(("nodes", name), cabled.why)
    return {number: cabled.end for number, cabled in ports.items()}


def _cabling(found: Found, ends: Mapping[Port, str]) -> Cabling:
    """The cables between nodes, by rank of their first end, as the loaded file will have them. Those to a switch
    matter only by being there."""
    rank = {name: place for place, name in enumerate(found.nodes)}
    cables = set()
    for port, end in ends.items():
        name, _, place = end.partition("/")
        if name in rank and place in ("0", "1"):
            first, second = sorted((port, Port(name, int(place))), key=lambda side: rank[side.node])
            cables.add(Cable(first, second, NODE_GBPS))
    return Cabling(sorted(cables, key=lambda cable: (rank[cable.a.node], cable.a.number)))


def _boxes(sheet: Sheet, found: Found, *, live: bool) -> None:
    for name, box in found.boxes.items():
        place = ("switches", name)
        entry: dict[str, Any] = {"address": box.address}
        sheet.section("switches")[name] = entry
        if box.tls is None:
            entry |= {"port": box.port, "tls": False}
            sheet.note((*place, "tls"), "the plain API: passwords go in the clear")
        else:
            entry |= {"port": box.port, "tls": {"sha256": box.tls}}
            if box.tls == NO_CERTIFICATE:
                sheet.note((*place, "tls"), "no certificate yet; sparkrack bootstrap switch writes it here")
        entry |= {"user": box.user, "password": dict(box.password)}
        if box.why:
            sheet.note((*place, "address"), f"not read: {box.why}")
        if box.facts is None:
            entry["model"] = MODEL
            sheet.note((*place, "model"), "not read")
            entry["cages"] = {}
        else:
            keys = switches.keys(box.facts)
            kept = keys.data if live else {key: keys.data[key] for key in _OF_THE_UNIT if key in keys.data}
            entry |= kept
            for key, note in keys.notes.items():
                if key in entry:
                    sheet.note((*place, key), note)
            sheet.lose(keys.beyond if live else ())
        for cage, split in box.cages.items():
            entry["cages"][cage] = {**entry["cages"].get(cage, {}), "split": split}
        if not entry["cages"]:
            sheet.lack((*place, "cages"), "no cage is split; say how, like qsfp56-dd-1: {split: 4x100G}")


_OF_THE_UNIT = ("model", "serial", "identity", "cages", "bridge")
"""What `init` takes over of a switch; how it is to be kept is the file's own to say."""
