"""The fabric addresses of a node, and the pairs of addresses that must reach each other."""

from __future__ import annotations

from core.model.addressing import Address
from core.model.schema import Rack


def addresses_of(rack: Rack, node: str) -> tuple[Address, ...]:
    """The fabric addresses of one node, by port, then by half; empty for a node without cables."""
    return rack.addresses_by_node.get(node, ())


def first_address(rack: Rack, node: str) -> Address | None:
    """The fabric address of a node that others reach it by beside RDMA: of its first half; None without a cable."""
    return next((address for address in addresses_of(rack, node) if address.half.index == 0), None)


def reachable(rack: Rack, node: str | None = None) -> tuple[tuple[Address, Address], ...]:
    """Every directed pair (from, to) of addresses that share a subnet, and so must reach each other; `node`: only those
    from this one."""
    return tuple(
        (here, there)
        for here in (rack.addresses if node is None else addresses_of(rack, node))
        for there in rack.addresses_by_subnet[here.interface.network]
        if there.half.node != here.half.node
    )
