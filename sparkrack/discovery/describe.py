"""The rack file that describes what was found. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from core.hardware import registry
from core.hardware.gb10 import PORT_GBPS
from core.hardware.switch_model import SwitchModel
from core.model import Cable, Cabling, Port, addressing
from core.model.errors import printable_line
from core.model.sections import Fabric
from sparkrack.discovery import fabric_section, node_sections
from sparkrack.discovery import switch_facts as switches
from sparkrack.discovery.cable_inference import Cables, heard_by_neighbours, infer, without_uplinks
from sparkrack.discovery.draft import Gap, RackDraft
from sparkrack.discovery.engine_containers import engine_gaps, suggestions
from sparkrack.discovery.node_facts import TIME_SERVERS, NodeFacts
from sparkrack.discovery.switch_facts import SwitchFacts

NO_CERTIFICATE = "0" * 64
"""The fingerprint of a switch that was not met yet; no certificate has it."""
UNKNOWN = "unknown"
"""Stands where a word belongs that was not found; no check lets it pass."""


@dataclass(frozen=True)
class FoundNode:
    """A node: its address, and its facts or why there are none; vendor and ports as the user gives them."""

    address: str
    facts: NodeFacts | None = None
    why: str = ""
    vendor: str | None = None
    ports: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FoundSwitch:
    """A switch: its endpoint, and its facts or why there are none. `password`: a reference to it. `model`,
    where the switch was not read, and `cages`, their splits: as the user gives them."""

    address: str
    port: int
    tls: str | None
    user: str
    password: Mapping[str, Any]
    facts: SwitchFacts | None = None
    why: str = ""
    cages: Mapping[str, str] = field(default_factory=dict)
    model: SwitchModel = registry.DEFAULT


@dataclass(frozen=True)
class FoundRack:
    """A rack as it was found, its nodes by rank. `access` is the file's section of that name. `implied`: `rack` and the
    keys of `access` whose value applies without being written."""

    name: str
    access: Mapping[str, Any]
    nodes: Mapping[str, FoundNode]
    boxes: Mapping[str, FoundSwitch]
    implied: frozenset[str] = frozenset()

    def with_ports(self, ports: Mapping[str, Mapping[int, str]]) -> FoundRack:
        """Return the rack with the ends of these cables, by node and port."""
        nodes = {
            name: replace(machine, ports={**machine.ports, **ports.get(name, {})})
            for name, machine in self.nodes.items()
        }
        return replace(self, nodes=nodes)


def describe(found: FoundRack, *, live: bool) -> RackDraft:
    """The file. `live`: with every value that the machines have now; else only what makes this rack this one, and for a
    rack without a switch nothing that applies by default."""
    compact = not live and not found.boxes
    implied = found.implied if compact else frozenset[str]()
    access = {key: value for key, value in found.access.items() if key not in implied}
    first: dict[str, Any] = {} if "rack" in implied else {"rack": found.name}
    sheet = RackDraft(first | ({"access": access} if access else {}), compact=compact)
    facts = {name: machine.facts for name, machine in found.nodes.items() if machine.facts}
    found, cables = _with_cables(found, facts)
    ends = _write_nodes(sheet, found, cables, live=live)
    _write_switches(sheet, found, live=live)
    _write_fabric(sheet, found, facts, ends)
    if not live and not compact:
        sheet.heads["nodes",] = [_unwritten_findings(node) for node in facts.values()]
    if live and facts:
        _write_live_values(sheet, facts)
    return sheet


def _with_cables(found: FoundRack, facts: Mapping[str, NodeFacts]) -> tuple[FoundRack, Cables]:
    """Return the rack without uplinks among the ports of its switches, and its cables."""
    seen = without_uplinks(facts.values(), (box.facts for box in found.boxes.values() if box.facts))
    linked = {one.name: one for one in seen}
    boxes = {name: replace(box, facts=linked.get(name, box.facts)) for name, box in found.boxes.items()}
    cables = infer(facts.values(), seen, switched=bool(boxes))
    if not boxes:
        cables = Cables({**cables.found, **heard_by_neighbours(facts.values(), cables)}, cables.unclear)
    return replace(found, boxes=boxes), cables


def _write_fabric(sheet: RackDraft, found: FoundRack, facts: Mapping[str, NodeFacts], ends: Mapping[Port, str]) -> None:
    """The section `fabric`, and the numbers of the nodes in it."""
    addresses = [machine.address for machine in found.nodes.values()]
    taken = [IPv4Address(address) for address in (*addresses, *(box.address for box in found.boxes.values()))]
    keys = fabric_section.keys(facts, _describe_cabling(found, ends), bool(found.boxes), taken)
    sheet.add_gap(keys.unrepresentable)
    fabric = {"mtu": 9000, **keys.data}
    if sheet.compact:
        fabric = {key: value for key, value in fabric.items() if not _applies_anyway(key, value)}
    if fabric:
        sheet.data["fabric"] = fabric
    for key, note in keys.notes.items():
        if key in fabric:
            sheet.note(("fabric", key), note)
    for name, number in keys.hosts.items():
        sheet.data["nodes"][name]["host"] = number


def _write_live_values(sheet: RackDraft, facts: Mapping[str, NodeFacts]) -> None:
    """Every value that the nodes have now, and what could not be read of them."""
    node_sections.fill(sheet, facts)
    engines = {name: node.engines for name, node in facts.items()}
    sheet.add_gap(engine_gaps(engines))
    sheet.heads[()] = suggestions(engines)
    for name, node in facts.items():
        unknown = {what: why for what, why in node.unknown.items() if what != TIME_SERVERS}
        sheet.add_gap(Gap(("nodes", name), f"{what}: unknown: {why}") for what, why in unknown.items())


def _applies_anyway(key: str, value: object) -> bool:
    """Return whether a key of the fabric gives each end of a cable what it has without being written."""
    if key == "pool":
        pool = IPv4Network(str(value))
        return pool.network_address == addressing.POOL.network_address and pool.subnet_of(addressing.POOL)
    return value == {"mtu": Fabric().mtu, "subnets": list(map(str, addressing.SUBNETS))}.get(key)


def summary(node: NodeFacts) -> str:
    """Return what a node is, in one line of a terminal."""
    words = f"{node.name}: {node.vendor or '?'}, driver {node.driver or '?'}, kernel {node.kernel or '?'}"
    return printable_line(words)


def _unwritten_findings(node: NodeFacts) -> str:
    """What a node has that `init` does not write down."""
    swapping = node.options.get("memory.swap")
    swap = "?" if swapping is None else "on" if swapping else "off"
    versions = f"driver {node.driver or '?'}, kernel {node.kernel or '?'}, docker: {node.engine or '?'}"
    return printable_line(f"{node.name}: {versions}, swap {swap}, management by {node.management or '?'}")


def _write_nodes(sheet: RackDraft, found: FoundRack, cables: Cables, *, live: bool) -> dict[Port, str]:
    """The section `nodes`; gives the end of each cable."""
    ports_of = {
        name: dict(sorted((dict(machine.ports) or _found_ports(sheet, name, cables)).items()))
        for name, machine in found.nodes.items()
    }
    ends = {Port(name, number): end for name, ports in ports_of.items() for number, end in ports.items()}
    cabled = {end.partition("/")[0] for end in ends.values()}
    for name, machine in found.nodes.items():
        facts, place = machine.facts, ("nodes", name)
        entry: dict[str, Any] = {"address": machine.address, **({"vendor": UNKNOWN} if live else {})}
        sheet.section("nodes")[name] = entry
        if machine.vendor:
            entry["vendor"] = machine.vendor
        elif facts and facts.vendor:
            entry["vendor"] = facts.vendor
        elif live:
            why = f"its DMI table has {facts.maker or 'no manufacturer'}" if facts else "it was not read"
            sheet.add_missing((*place, "vendor"), why)
        ports = ports_of[name]
        if not ports and len(found.nodes) > 1 and name not in cabled:
            sheet.add_missing((*place, "ports"), "no machine reports where its cable ends")
        if sheet.compact:
            # Written at the end of lower rank, which stands first.
            above = {str(port): end for port, end in ends.items() if port.node in sheet.section("nodes")}
            ports = {number: end for number, end in ports.items() if above.get(end) != f"{name}/{number}"}
        if ports or not sheet.compact:
            entry["ports"] = ports
        if facts:
            for function in facts.unexpected_functions:
                sheet.add_missing((*place, "ports"), f"{function} is not a function that a GB10 has")
    return ends


def _found_ports(sheet: RackDraft, name: str, cables: Cables) -> dict[int, str]:
    ports = {port.number: cabled for port, cabled in cables.found.items() if port.node == name}
    for port, why in cables.unclear.items():
        if port.node == name:
            sheet.add_missing(("nodes", name, "ports"), f"port {port.number} {why}")
    for cabled in dict.fromkeys(ports.values()) if not sheet.compact else ():
        sheet.note(("nodes", name), cabled.why)
    return {number: cabled.end for number, cabled in ports.items()}


def _describe_cabling(found: FoundRack, ends: Mapping[Port, str]) -> Cabling:
    """The cables between nodes, by rank of their first end, as the loaded file will have them. Those to a switch
    matter only by being there."""
    rank = {name: place for place, name in enumerate(found.nodes)}
    cables = set()
    for port, end in ends.items():
        name, _, place = end.partition("/")
        if name in rank and place in ("0", "1"):
            first, second = sorted((port, Port(name, int(place))), key=lambda side: rank[side.node])
            cables.add(Cable(first, second, PORT_GBPS))
    return Cabling(sorted(cables, key=lambda cable: (rank[cable.a.node], cable.a.number)))


def _write_switches(sheet: RackDraft, found: FoundRack, *, live: bool) -> None:
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
                sheet.note((*place, "tls"), "of its certificate; sparkrack bootstrap switch writes it here")
        entry |= {"user": box.user, "password": dict(box.password)}
        if box.facts is None:
            entry["model"] = box.model.board
            entry["cages"] = {}
        else:
            keys = switches.keys(box.facts, live=live)
            kept = keys.data if live else {key: keys.data[key] for key in _OF_THE_UNIT if key in keys.data}
            entry |= kept
            for key, note in keys.notes.items():
                if key in entry:
                    sheet.note((*place, key), note)
            sheet.add_gap(keys.unrepresentable if live else ())
            for gap in keys.missing if live else ():
                sheet.add_missing(gap.place, gap.why)
            if registry.find(entry["model"]) is None:
                reported = printable_line(entry["model"]) or "no model"
                sheet.add_missing((*place, "model"), f"the board reports {reported}; known are {registry.choices()}")
        for cage, split in box.cages.items():
            entry["cages"][cage] = {**entry["cages"].get(cage, {}), "split": split}
        if not entry["cages"]:
            sheet.add_missing((*place, "cages"), "no cage is split; declare it, like qsfp56-dd-1: {split: 4x100G}")


_OF_THE_UNIT = ("model", "serial", "identity", "cages", "bridge")
"""What `init` takes over of a switch; the settings are declared in the file."""
