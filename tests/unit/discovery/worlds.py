"""A rack as its hosts report it in its declared state, until a test changes the answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.model import Half, Leg, Rack
from core.probes.protocol import Answer
from sparkrack.discovery.describe import FoundNode, FoundRack, FoundSwitch, describe
from sparkrack.discovery.draft import RackDraft
from sparkrack.discovery.node_facts import NodeFacts, parse_node_facts
from sparkrack.discovery.pending_changes import changes
from sparkrack.discovery.switch_facts import SwitchFacts
from sparkrack.discovery.yaml_writer import text
from switch.plan import plan
from tests.unit.model.racks import loaded
from tests.unit.switch.rows import Tables, carry_out, factory, reading

MAKERS = {"nvidia": "NVIDIA", "asus": "ASUSTeK COMPUTER INC.", "lenovo": "LENOVO", "hp": "HP", "msi": "Micro-Star"}
ID = "sha256:" + "a" * 64
PACKAGES = (
    "nvidia-driver-580-open 580.159.03-0ubuntu1 hold ok installed",
    "linux-image-6.17.0-1021-nvidia 6.17.0-1021.21 hold ok installed",
    "linux-modules-6.17.0-1021-nvidia 6.17.0-1021.21 hold ok installed",
    "linux-modules-nvidia-580-open-6.17.0-1021-nvidia 6.17.0-1021.21 hold ok installed",
)


def printed(*lines: str, code: int = 0) -> Answer:
    """Return the answer of a tool that prints these lines."""
    return Answer(code, "".join(f"{line}\n" for line in lines).encode())


@dataclass
class World:
    """Nodes by the lines that they answer to each question, and switches by their tables, or by facts in `seen`."""

    rack: Rack
    nodes: dict[str, dict[str, Answer]] = field(default_factory=dict)
    tables: dict[str, Tables] = field(default_factory=dict)
    hosts: dict[str, dict[str, str]] = field(default_factory=dict)
    seen: dict[str, SwitchFacts] = field(default_factory=dict)

    def facts(self) -> dict[str, NodeFacts]:
        return {name: parse_node_facts(name, reported) for name, reported in self.nodes.items()}

    def switches(self) -> dict[str, SwitchFacts]:
        made = {name: SwitchFacts(name, reading(rows), self.hosts[name]) for name, rows in self.tables.items()}
        return made | self.seen

    def found(self) -> FoundRack:
        facts, heard = self.facts(), self.switches()
        nodes = {name: FoundNode(str(node.address), facts[name]) for name, node in self.rack.nodes.items()}
        boxes = {
            name: FoundSwitch(
                str(one.address),
                one.port,
                one.tls.sha256 if one.tls else None,
                one.user,
                {"env": one.password.env},
                heard[name],
            )
            for name, one in self.rack.switches.items()
        }
        access = {"user": "ops", "key": "~/.ssh/id_ed25519", "known_hosts": "known_hosts"}
        return FoundRack(self.rack.rack, access, nodes, boxes)

    def sheet(self, *, live: bool = True) -> RackDraft:
        return describe(self.found(), live=live)

    def adopted(self) -> Rack:
        """The rack that the written file is."""
        return loaded(text(self.sheet()))

    def residue(self) -> tuple[str, ...]:
        return changes(self.adopted(), self.facts(), self.switches())

    def say(self, node: str, question: str, *lines: str, code: int = 0) -> None:
        """Change an answer of a node."""
        self.nodes[node][question] = printed(*lines, code=code)

    def device(self, half: Half) -> dict[str, Any]:
        """The row of `ip address` of an interface, to be changed; `keep` puts it back."""
        rows = json.loads(self.nodes[half.node]["links"].text)
        row: dict[str, Any] = next(row for row in rows if row["ifname"] == half.interface)
        return row

    def keep(self, half: Half, changed: Mapping[str, Any]) -> None:
        rows = json.loads(self.nodes[half.node]["links"].text)
        rows = [changed if row["ifname"] == half.interface else row for row in rows]
        self.say(half.node, "links", json.dumps(rows))

    def address(self, half: Half, *addresses: str) -> None:
        """Give an interface other addresses."""
        self.keep(half, {**self.device(half), "addr_info": [_inet_address(one) for one in addresses]})


def answers(rack: Rack) -> World:
    """Create the nodes of a rack in their declared state; its switches have no tables yet."""
    made = World(rack)
    for name in rack.nodes:
        made.nodes[name] = {question: printed(*lines) for question, lines in _list_answers(rack, name)}
    return made


def world(rack: Rack) -> World:
    """Create a rack in its declared state."""
    made = answers(rack)
    for name, switch in rack.switches.items():
        tables = factory()
        carry_out(tables, plan(rack, switch, reading(tables)).changes)
        made.tables[name] = tables
        made.hosts[name] = {
            mac(half): cable.b.interface
            for cable in rack.cabling.cables
            if isinstance(cable.b, Leg) and cable.b.switch == name
            for half in cable.a.halves
        }
    return made


def mac(half: Half) -> str:
    """An address of its own for each half of each node."""
    node = sum(ord(sign) << at for at, sign in enumerate(half.node)) % 65536
    return f"02:5b:{node >> 8:02x}:{node & 255:02x}:{half.port:02x}:{half.index:02x}"


def _list_answers(rack: Rack, name: str) -> Iterator[tuple[str, list[str]]]:
    maker = MAKERS[rack.nodes[name].vendor or "nvidia"]
    yield "hostname", [name]
    yield "maker", ["# SMBIOS implementations newer than version 3.7.0 are not", maker]
    yield "board", ["NVIDIA"]
    yield "links", [json.dumps(list(_list_devices(rack, name)))]
    yield "neighbours", ["[]"]
    places = {(port, index): f"{2 * index:04}:01:00.{port}" for port in (0, 1) for index in (0, 1)}
    yield "functions", [f"{Half(name, *which).interface} {place}" for which, place in places.items()]
    yield "route", ['[{"dst":"default","gateway":"10.77.0.1","dev":"enP7s7"}]']
    yield "memory.swap", ["Filename Type Size Used Priority"]
    yield "memory.overcommit_memory", ["0"]
    yield "memory.min_free_kbytes", ["1572864"]
    yield "time-servers", ["systemd-timesyncd.service 0", "SystemNTPServers=", "FallbackNTPServers=ntp.ubuntu.com"]
    yield "kernel", ["6.17.0-1021-nvidia"]
    yield "driver", ["580.159.03"]
    yield "packages", list(PACKAGES)
    yield "engine", ["Docker version 29.1.3, build 0123456"]
    yield "docker.memory", [str(100 << 30)]
    yield "docker.logs", ['"log-driver": "json-file"']
    yield "docker.log_size", ['"max-size": "50m"']
    yield "docker.log_files", ['"max-file": "5"']
    yield "docker.live_restore", []
    yield "images", [f"{ID} scitrera/dgx-spark-sglang 0.5.12 {ID} 12GB"]
    yield "sshd", ["permitrootlogin no", "passwordauthentication no", "kbdinteractiveauthentication no"]
    yield from ((question, []) for question in ("naming", "whole", "rendering", "owners"))
    yield "hotplug", ["no"]
    yield "engines", []


def _list_devices(rack: Rack, name: str) -> Iterator[dict[str, Any]]:
    yield {"ifname": "enP7s7", "flags": ["UP"], "mtu": 1500, "address": "02:00:00:00:00:01", "addr_info": []}
    held = {address.half: address for address in rack.addresses if address.half.node == name}
    for half in (Half(name, port, index) for port in (0, 1) for index in (0, 1)):
        address = held.get(half)
        flags = ["UP"] if address else []
        row = {
            "ifname": half.interface,
            "flags": flags,
            "mtu": rack.fabric.mtu if address else 1500,
            "address": mac(half),
        }
        own = [_inet_address(str(address.interface))] if address else []
        yield {**row, "addr_info": [] if address and address.vlan else own}
        if address and address.vlan:
            info = {"info_kind": "vlan", "info_data": {"protocol": "802.1Q", "id": address.vlan}}
            yield {**row, "ifname": address.device, "link": half.interface, "linkinfo": info, "addr_info": own}


def _inet_address(text: str) -> dict[str, Any]:
    ip, _, length = text.partition("/")
    return {"family": "inet", "local": ip, "prefixlen": int(length)}
