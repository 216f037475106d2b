"""Hosts with answers as declared, until a test changes them: raw output of a node, rows of a switch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.model import Half, Rack, addresses_of, load
from sparkrack.topology.observed import Observations, SwitchObservation, parse_observation
from tests.unit.model.racks import ACCESS, DIRECT, KEPT, RING, SUBNETS, SWITCH, loaded
from tests.unit.model.racks import node as node_line
from tests.unit.probe_output import probe_output

RACKS: Mapping[str, Rack] = {
    "switch": loaded(SWITCH),
    "direct": loaded(DIRECT),
    "ring": loaded(RING),
    "vlans": loaded(KEPT),
    "lone": loaded(f"rack: lone\n{ACCESS}nodes:\n{node_line('solo', 0, {})}{SUBNETS}"),
    "eight": load(Path(__file__).parents[3] / "examples/rack.yaml"),
}


@dataclass
class Card:
    """A node's answer about one half. `device`: its row of `ip -j address`; `vlan`: the same of its VLAN, if any."""

    mac: str
    link: str
    speed: str
    device: dict[str, Any]
    vlan: dict[str, Any]

    @property
    def ethtool(self) -> str:
        return f"Settings for x:\n\tSpeed: {self.speed}\n\tLink detected: {self.link}\n"


@dataclass
class Answers:
    """All machines of a rack. `cards` of each half (None: there is no such interface), `monitor` and `ethernet` of each
    leg, `heard`: the interface behind which a MAC is; `silent`: why a machine does not answer."""

    rack: Rack
    cards: dict[Half, Card | None] = field(default_factory=dict)
    monitor: dict[str, dict[str, str]] = field(default_factory=dict)
    ethernet: dict[str, dict[str, str]] = field(default_factory=dict)
    heard: dict[str, str] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)

    def output(self, node: str) -> str:
        """Return the output of the node."""
        cards = {half: card for half, card in self.cards.items() if half.node == node and card}
        absent = {half.interface: "netlink error: No such device" for half in self.cards if half.node == node}
        halves = {half.interface: card.ethtool for half, card in cards.items()}
        return probe_output({"links": json.dumps(self.devices(node)), **absent, **halves})

    def devices(self, node: str) -> list[dict[str, Any]]:
        """Return the rows that `ip -d -j address` prints on the node."""
        cards = [(half, card) for half, card in self.cards.items() if half.node == node and card]
        lower = [{"ifname": half.interface, **card.device, "address": card.mac} for half, card in cards]
        return [*lower, *(card.vlan for _, card in cards if card.vlan)]

    def seen(self) -> Observations:
        """Return the observations."""
        nodes = {
            name: self.silent.get(name) or parse_observation(self.output(name), self.rack.cabling.ports_of(name))
            for name in self.rack.nodes
        }
        switches = {
            name: self.silent.get(name) or SwitchObservation(self.monitor, self.ethernet, self.heard)
            for name in self.rack.switches
        }
        return Observations(nodes, switches)


def answers(rack: Rack) -> Answers:
    """Everything as declared."""
    made = Answers(rack)
    for node in rack.nodes:
        for address in addresses_of(rack, node):
            half, text = address.half, address.interface
            (port,) = (one for one in rack.cabling.ports_of(node) if half in one.halves)
            cable = rack.cabling.cable_of(port)
            assert cable
            mac = f"02:00:00:00:00:{len(made.cards):02x}"
            own = [{"family": "inet", "local": str(text.ip), "prefixlen": text.network.prefixlen}]
            local = [{"family": "inet6", "local": "fe80::1", "prefixlen": 64}]
            tag = {"linkinfo": {"info_kind": "vlan", "info_data": {"protocol": "802.1Q", "id": address.vlan}}}
            mtu = rack.fabric.mtu
            lower = {"ifname": half.interface, "mtu": mtu, "addr_info": [*([] if address.vlan else own), *local]}
            upper = {"ifname": address.device, "mtu": mtu, "addr_info": [*own, *local], **tag} if address.vlan else {}
            made.cards[half] = Card(mac.upper(), "yes", f"{cable.gbps * 1000}Mb/s", lower, upper)
            if leg := rack.cabling.leg_of(port):
                made.heard[mac] = leg.interface
    for switch in rack.switches.values():
        for leg, _ in rack.cabling.legs(switch.name):
            made.monitor[leg.interface] = {"status": "link-ok", "rate": f"{leg.gbps}Gbps"}
            made.ethernet[leg.interface] = {"mtu": str(switch.mtu), "l2mtu": str(switch.l2mtu)}
    return made


Change = Callable[[Answers], object]


def node(name: str, change: Callable[[Card], object]) -> Change:
    """Change the answer of each half of a node."""

    def apply(reported: Answers) -> None:
        for card in cards(reported, name):
            change(card)

    return apply


def cards(reported: Answers, name: str) -> Iterable[Card]:
    """The halves of a node."""
    return [card for half, card in reported.cards.items() if half.node == name and card]
