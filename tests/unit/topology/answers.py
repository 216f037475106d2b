"""Machines that answer as declared, until a test changes what they say: raw output of a node, rows of a switch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkrack.fleet import Half, Rack, addresses_of, load
from sparkrack.topology.said import Seen, SwitchSaid, understood
from tests.unit.fleet.racks import ACCESS, DIRECT, KEPT, RING, SUBNETS, SWITCH, loaded
from tests.unit.fleet.racks import node as node_line

RACKS: Mapping[str, Rack] = {
    "switch": loaded(SWITCH),
    "direct": loaded(DIRECT),
    "ring": loaded(RING),
    "vlans": loaded(KEPT),
    "lone": loaded(f"rack: lone\n{ACCESS}nodes:\n{node_line('solo', 0, {})}{SUBNETS}"),
    "eight": load(Path(__file__).parents[3] / "group_data/rack.yaml"),
}


@dataclass
class Card:
    """What a node says of one half. `device`: its row of `ip -j address`; `vlan`: the same of its VLAN, if any."""

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
        """What the node prints when it is asked."""
        cards = {half: card for half, card in self.cards.items() if half.node == node and card}
        links = [{"ifname": half.interface, "address": card.mac} for half, card in cards.items()]
        halves = {half.interface: card.ethtool for half, card in cards.items()}
        absent = {half.interface: "netlink error: No such device" for half in self.cards if half.node == node}
        sections = "".join(f"sparkrack-half {name}\n{text}\n" for name, text in (absent | halves).items())
        devices = [device for card in cards.values() for device in (card.device, card.vlan) if device]
        return f"{json.dumps(links)}\n{sections}sparkrack-devices\n{json.dumps(devices)}\n"

    def seen(self) -> Seen:
        """What was said, as the drawing takes it."""
        nodes = {
            name: self.silent.get(name) or understood(self.output(name), self.rack.cabling.ports_of(name))
            for name in self.rack.nodes
        }
        switches = {
            name: self.silent.get(name) or SwitchSaid(self.monitor, self.ethernet, self.heard)
            for name in self.rack.switches
        }
        return Seen(nodes, switches)


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
    """Each half of a node answers otherwise."""

    def apply(said: Answers) -> None:
        for card in cards(said, name):
            change(card)

    return apply


def cards(said: Answers, name: str) -> Iterable[Card]:
    """The halves of a node."""
    return [card for half, card in said.cards.items() if half.node == name and card]
