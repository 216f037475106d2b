"""How the libraries that span nodes use the fabric: the section `rdma` of rack.yaml, and its rule."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import Literal

from core.model.cabling import Cabling, Leg
from core.model.errors import RuleViolation
from core.model.fields import Section
from core.model.partial_rack import PartialRack
from core.model.reachability import first_address
from core.model.schema import Rack


class RdmaOptions(Section):
    """How the libraries that span nodes use the fabric.

    `sockets`: the network for what they say to each other beside RDMA; the fabric has one address for each half, so a
    ring, whose addresses are pairwise, needs management.
    """

    sockets: Literal["management", "fabric"] = "management"


def check_sockets(partial: PartialRack, rdma: RdmaOptions, cabling: Cabling) -> Iterator[RuleViolation]:
    """Traffic beside RDMA goes from every node to every other, and to the head by one address: without a switch,
    the fabric has such addresses only between two nodes."""
    if rdma.sockets == "management" or any(isinstance(cable.b, Leg) for cable in cabling.cables):
        return
    if not cabling.cables:
        yield RuleViolation(
            ("rdma", "sockets"), "no node has a cable, so none has a fabric address", "write management"
        )
    elif len(partial.nodes) > 2:
        yield RuleViolation(
            ("rdma", "sockets"),
            f"cables between {len(partial.nodes)} nodes give each pair addresses of its own, and none that all reach",
            "write management",
        )


def socket_addresses(rack: Rack) -> dict[str, IPv4Address]:
    """Return the address of each node for traffic beside RDMA, by name; a node without one is not there."""
    if rack.options(RdmaOptions).sockets == "management":
        return {name: node.address for name, node in rack.nodes.items()}
    found = {name: first_address(rack, name) for name in rack.nodes}
    return {name: address.interface.ip for name, address in found.items() if address}
