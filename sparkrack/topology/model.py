"""Elements of the topology: frozen data, which is also its JSON."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, computed_field

from core.util.records import Record

State = Literal["declared", "fine", "mismatch", "unknown"]
"""State of a link: not compared, everything as declared, a difference, or an unknown value."""


class HalfBox(Record):
    """One interface behind a port: its name, and the device that holds its address (itself, or a VLAN on it)."""

    interface: str
    device: str
    address: str = Field(description='with the prefix, "192.168.100.1/24"')
    vlan: int | None


class PortBox(Record):
    """A cage of a node that holds a cable; `name` is "spark1/1"."""

    name: str
    number: int
    halves: tuple[HalfBox, ...]


class NodeBox(Record):
    """A node; `address` is that of its management, `vendor` None where rack.yaml names none."""

    name: str
    address: str
    vendor: str | None
    ports: tuple[PortBox, ...]


class LegBox(Record):
    """A leg of a cage; `name` is "crs812/qsfp56-dd-1-3", `port` the port at its end, None for a free one."""

    name: str
    interface: str
    lanes: tuple[int, ...]
    gbps: int
    port: str | None


class CageBox(Record):
    """A declared cage of a switch, and its legs."""

    name: str
    split: str
    medium: str
    legs: tuple[LegBox, ...]


class SwitchBox(Record):
    """A switch; `mtu` and `l2mtu` in bytes are those of its cabled legs."""

    name: str
    address: str
    mtu: int
    l2mtu: int
    cages: tuple[CageBox, ...]


class DesiredLink(Record):
    """Declared values of a link: speed in Gb/s, its lanes in the cage of the switch (none between nodes), MTU in bytes
    at the nodes.
    """

    gbps: int
    lanes: tuple[int, ...]
    mtu: int


class SeenHalf(Record):
    """A node's report of one of its interfaces; None is an unknown value. Speed in Gb/s, MTU in bytes, the IPv4
    addresses of the device that should have one.
    """

    name: str = Field(description='"spark1/enp1s0f1np1"')
    carrier: bool | None
    gbps: float | None
    mtu: int | None
    addresses: tuple[str, ...] | None


class SeenLeg(Record):
    """The switch's report of a leg; None is an unknown value. `status` is its own word ("link-ok")."""

    status: str | None
    gbps: float | None
    mtu: int | None
    l2mtu: int | None


class SeenLink(Record):
    """The reports of both ends. `behind`: the interfaces of the switch on which it learned the node, None
    when unknown.
    """

    halves: tuple[SeenHalf, ...]
    leg: SeenLeg | None
    behind: tuple[str, ...] | None


class Edge(Record):
    """A link: from port `a` of a node to `b`, a leg of a switch or a port of another node, by their names.

    `seen` is None when no host was asked or none answered. `mismatches` and `unknown` are sentences.
    """

    a: str
    b: str
    wanted: DesiredLink
    seen: SeenLink | None = None
    mismatches: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def state(self) -> State:
        """State of the edge: a mismatch wins over unknown."""
        if self.mismatches:
            return "mismatch"
        if self.unknown:
            return "unknown"
        return "fine" if self.seen else "declared"


class Topology(Record):
    """A rack, or its selected part. `compared`: whether it was compared with the actual state."""

    schema_: Literal["sparkrack.topology/1"] = Field(
        "sparkrack.topology/1", alias="schema", serialization_alias="schema"
    )
    rack: str
    topology: Literal["direct", "ring", "switch"]
    compared: bool
    nodes: tuple[NodeBox, ...]
    switches: tuple[SwitchBox, ...]
    edges: tuple[Edge, ...]

    def json_text(self) -> str:
        """The JSON document, indented, with a line end."""
        return self.model_dump_json(by_alias=True, indent=1) + "\n"

    @property
    def exit(self) -> int:
        """The exit code: 1 when anything is unknown, regardless of other findings, 2 for a mismatch, else 0."""
        if any(edge.unknown for edge in self.edges):
            return 1
        return 2 if self.count("mismatch") else 0

    def count(self, state: State) -> int:
        """Return the number of links in this state."""
        return sum(edge.state == state for edge in self.edges)
