"""Measurement of the fabric's bandwidth: the tests, the shell texts for both ends, and the parser of their output.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from core.model import Address, Rack
from core.model.rdma_flows import TEST_SECONDS, TOOL_OPTIONS, Flow, half_flows, leg_gbps, used
from core.util import resources
from roles.rdma.bandwidth_verdict import MeasuredFlow, moved
from roles.rdma.environment import GID_INDEX, device

MAX_WAIT_SECONDS = 30
"""After so long (seconds) a tool that waits for its peer is ended, on either side."""


# claim: rdma.bandwidth-neighbours
def tests(rack: Rack, node: str) -> list[tuple[Flow, ...]]:
    """Return the tests of a node: each of its halves alone, then both of a port at once where the cable needs both.

    Each half sends to the next node that shares its subnet, so that every direction of every cable is used by one test
    at a time, although all nodes measure in parallel.
    """
    singles = half_flows(rack, node, tuple(rack.nodes))
    carrying = used(rack, node)
    pairs = []
    for first, second in pairwise(singles):
        same = first.here.half.port == second.here.half.port and first.there.half.port == second.there.half.port
        if same and first.here in carrying and second.here in carrying:
            pairs.append(tuple(Flow(flow.here, flow.there, flow.port + 4) for flow in (first, second)))
    return [*((flow,) for flow in singles), *pairs]


def _shell_functions() -> str:
    """Return the functions of both ends."""
    return resources.file_text(
        "roles.rdma",
        "templates/bandwidth-tools.sh",
        gid_index=GID_INDEX,
        longest=MAX_WAIT_SECONDS,
        options=" ".join(TOOL_OPTIONS),
    )


def server(flows: Sequence[Flow]) -> str:
    """Shell text for the receiving node: starts its tools, and ends when they listen."""
    # In a session of its own: sudo ends what is left on its terminal.
    calls = [f"serve {tag} {_end_words(flow.there)} {flow.port}" for tag, flow in enumerate(flows)]
    return "\n".join([_shell_functions() + resources.file_text("roles.rdma", "files/bandwidth-server.sh"), *calls])


def client(flows: Sequence[Flow]) -> str:
    """Shell text for the sending node: all flows at the same time."""
    calls = [
        f"measure {tag} {_end_words(flow.here)} {flow.port} {flow.there.interface.ip} &"
        for tag, flow in enumerate(flows)
    ]
    return "\n".join(
        [_shell_functions() + resources.file_text("roles.rdma", "files/bandwidth-client.sh"), *calls, "wait"]
    )


def _end_words(address: Address) -> str:
    half = address.half
    # The halves of a port are in two PCIe domains (Half).
    return f"{half.interface} {('0000', '0002')[half.index]}:01:00.{half.port} {device(half, {})}"


_ROW = re.compile(r"^\d+ said\s+\d+\s+\d+\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s*$", re.MULTILINE)
"""A row of ib_write_bw: bytes, iterations, peak, average, messages."""


def measured(rack: Rack, flows: Sequence[Flow], here: str, there: str) -> MeasuredFlow:
    """Parse the results in the output of the two ends. Raises ValueError with the tool's message when there
    are none.
    """
    figures, counted = [], []
    for tag in range(len(flows)):
        own = "\n".join(line for line in here.splitlines() if line.startswith(f"{tag} "))
        rows = _ROW.findall(own)
        if f"{tag} exit 0" not in own.splitlines() or not rows:
            reported = [line.partition(" said ")[2].strip() for line in own.splitlines() if " said " in line]
            raise ValueError(next((line for line in reversed(reported) if line), "ib_write_bw says nothing"))
        figures.append(float(rows[-1]))
        count = re.search(rf"^{tag} sent (\d+) (\d+)$", own, re.MULTILINE)
        if count:
            counted.append(moved(int(count[1]), int(count[2]), figures[-1], TEST_SECONDS))
    port = next(port for port in rack.cabling.ports_of(flows[0].here.half.node) if flows[0].here.half in port.halves)
    links = [int(speed) / 1000 for speed in re.findall(r"^\d+ link (\d+)$", f"{here}\n{there}", re.MULTILINE)]
    lanes = [int(width) for width in re.findall(r"^\d+ lanes (\d+)$", f"{here}\n{there}", re.MULTILINE)]
    return MeasuredFlow(
        tuple(figures),
        leg=leg_gbps(rack, flows[0].here),
        link=min(links, default=None),
        lanes=min(lanes, default=None),
        moved=all(counted) if counted else None,
        switched=rack.cabling.leg_of(port) is not None,
    )


def about(flows: Sequence[Flow]) -> str:
    """Return source and destination for display."""
    halves = "+".join(flow.here.half.interface for flow in flows)
    return f"{flows[0].here.half.node}/{halves} -> {flows[0].there.half.node}"
