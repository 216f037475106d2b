"""What a picture is made of: frozen data, which is also its JSON."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, computed_field

State = Literal["declared", "fine", "mismatch", "unknown"]
"""Of a link: nobody was asked, all that was asked for is as wanted, something is not, something could not be told."""


class Part(BaseModel):
    """A part of a picture: no unknown keys, no change once it is drawn."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class HalfBox(Part):
    """One interface behind a port: its name, and the device that holds its address (itself, or a VLAN on it)."""

    interface: str
    device: str
    address: str = Field(description='with the prefix, "192.168.100.1/24"')
    vlan: int | None


class PortBox(Part):
    """A cage of a node that holds a cable; `name` is "spark1/1"."""

    name: str
    number: int
    halves: tuple[HalfBox, ...]


class NodeBox(Part):
    """A node; `address` is that of its management."""

    name: str
    address: str
    vendor: str
    ports: tuple[PortBox, ...]


class LegBox(Part):
    """A leg of a cage; `name` is "crs812/qsfp56-dd-1-3", `port` what is cabled to it, None for a free one."""

    name: str
    interface: str
    lanes: tuple[int, ...]
    gbps: int
    port: str | None


class CageBox(Part):
    """A declared cage of a switch, and the legs that it is split into."""

    name: str
    split: str
    medium: str
    legs: tuple[LegBox, ...]


class SwitchBox(Part):
    """A switch; `mtu` and `l2mtu` in bytes are those of its cabled legs."""

    name: str
    address: str
    mtu: int
    l2mtu: int
    cages: tuple[CageBox, ...]


class Wanted(Part):
    """What a link is declared to be: speed in Gb/s, the lanes it takes in the cage of the switch (none between
    nodes), MTU in bytes at the nodes."""

    gbps: int
    lanes: tuple[int, ...]
    mtu: int


class SeenHalf(Part):
    """What a node said of one of its interfaces; None is what it did not tell. Speed in Gb/s, MTU in bytes, the IPv4
    addresses of the device that should have one."""

    name: str = Field(description='"spark1/enp1s0f1np1"')
    carrier: bool | None
    gbps: float | None
    mtu: int | None
    addresses: tuple[str, ...] | None


class SeenLeg(Part):
    """What the switch said of a leg; None is what it did not tell. `status` is its own word ("link-ok")."""

    status: str | None
    gbps: float | None
    mtu: int | None
    l2mtu: int | None


class SeenLink(Part):
    """What both ends said. `behind`: the interfaces of the switch behind which it heard the node, None when it could
    not be told."""

    halves: tuple[SeenHalf, ...]
    leg: SeenLeg | None
    behind: tuple[str, ...] | None


class Edge(Part):
    """A link: from port `a` of a node to `b`, a leg of a switch or a port of another node, by their names.

    `seen` is None when nobody was asked or nobody answered. `mismatches` and `unknown` are sentences.
    """

    a: str
    b: str
    wanted: Wanted
    seen: SeenLink | None = None
    mismatches: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def state(self) -> State:
        """A mismatch counts for more than what is unknown beside it."""
        if self.mismatches:
            return "mismatch"
        if self.unknown:
            return "unknown"
        return "fine" if self.seen else "declared"


class Picture(Part):
    """A rack, or the part of it that was asked for. `compared`: whether it was asked what is there."""

    schema_: Literal["sparkrack.topology/1"] = Field(default="sparkrack.topology/1", alias="schema")
    rack: str
    topology: Literal["direct", "ring", "switch"]
    compared: bool
    nodes: tuple[NodeBox, ...]
    switches: tuple[SwitchBox, ...]
    edges: tuple[Edge, ...]

    def json_text(self) -> str:
        """The JSON document, indented, with a line end."""
        return self.model_dump_json(by_alias=True, indent=1) + "\n"

    def count(self, state: State) -> int:
        """How many links are in this state."""
        return sum(edge.state == state for edge in self.edges)
