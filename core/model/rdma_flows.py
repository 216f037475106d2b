"""Measurement of the fabric by RDMA: who sends to whom, by which options of the tool, and what is enough. Pure.

`ib_write_bw` of perftest, with four queue pairs and messages of 1 MiB for five seconds: one TCP stream of an ARM core,
or one queue pair, stays far below the rate of a half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.hardware import gb10
from core.model.addressing import Address
from core.model.reachability import addresses_of, reachable
from core.model.schema import Rack

TEST_SECONDS = 5
TOOL_OPTIONS = ("-D", str(TEST_SECONDS), "-q", "4", "--report_gbits", "-s", "1048576")
_FIRST_PORT = 18600
"""perftest's own is 18515. Below the ports that the kernel gives out, and eight for each node."""

# claim: rdma.bandwidth-borders
HALF = 80.0
"""Gb/s. One half of a port passes with this on links of 100G and more (PR: NVIDIA/dgx-spark-playbooks pull request
108); 92 to 112 is healthy."""
SHARE = 0.8
"""Required share of a link slower than 100G (inferred from 80 of 100)."""
STALE = (8.0, 25.0)
"""Gb/s. A ConnectX-7 that came up badly (PR); mostly 12 to 13.5."""
STALE_REMEDY = (
    "leave the cables as they are, reboot both ends and measure again; if it stays, shut both down and take them off "
    "power for 60 s"
)


@dataclass(frozen=True)
class Flow:
    """One half sending to a neighbour's; `port` is the TCP port by which the two tools meet."""

    here: Address
    there: Address
    port: int


def half_flows(rack: Rack, node: str, members: Sequence[str]) -> list[Flow]:
    """Return the flows of a node: each of its halves to the next member that shares its subnet.

    With one flow at a time from each node, every direction of every cable is used by one flow at a time.

    Args:
        rack: the rack.
        node: the node that sends.
        members: the nodes that measure at the same time, in an order that is the same for each of them.
    """
    rank = {name: place for place, name in enumerate(members)}
    nearest: dict[Address, Address] = {}
    for here, there in reachable(rack, node):
        if there.half.node not in rank:
            continue

        def distance(address: Address) -> int:
            return (rank[address.half.node] - rank[node]) % len(rank)

        if here not in nearest or distance(there) < distance(nearest[here]):
            nearest[here] = there
    first = _FIRST_PORT + 8 * list(rack.nodes).index(node)
    return [Flow(here, there, first + number) for number, (here, there) in enumerate(nearest.items())]


def used(rack: Rack, node: str) -> list[Address]:
    """Return the fabric addresses of the halves that NCCL uses: both of a port, or the first if that fills the link."""
    found = []
    for port in rack.cabling.ports_of(node):
        cable = rack.cabling.cable_of(port)
        both = cable is not None and cable.gbps > gb10.HALF_GBPS
        found += [a for a in addresses_of(rack, node) if a.half in port.halves and (both or a.half.index == 0)]
    return found


def unit_flows(rack: Rack, members: Sequence[str]) -> list[Flow]:
    """Return the flows that prove RDMA between the nodes of a unit: those of the halves that NCCL uses."""
    carrying = {address for name in members for address in used(rack, name)}
    flows = [flow for name in members for flow in half_flows(rack, name, members)]
    return [flow for flow in flows if flow.here in carrying and flow.there in carrying]


def leg_gbps(rack: Rack, address: Address) -> int:
    """Return the declared speed of the cable of a half (Gb/s)."""
    port = next(port for port in rack.cabling.ports_of(address.half.node) if address.half in port.halves)
    cable = rack.cabling.cable_of(port)
    return cable.gbps if cable else 0


def enough_for_half(leg: int) -> float:
    """Return the lowest healthy rate of one half on a cable of this speed (both Gb/s)."""
    return HALF if leg >= 100 else leg * SHARE
