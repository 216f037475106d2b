"""How the bandwidth of the fabric is measured: who sends to whom, the shell texts for both ends, what they print. Pure.

`ib_write_bw` of perftest, with four queue pairs and messages of 1 MiB for five seconds: one TCP stream of an ARM core,
or one queue pair, stays far below what a half carries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from roles.rdma.environment import GID_INDEX, device, used
from roles.rdma.verdict import Measured, moved
from sparkrack.fleet import Address, Rack, reachable

SECONDS = 5
LONGEST = 30
"""After so long (seconds) a tool that waits for its peer is ended, on either side."""
_FIRST_PORT = 18600
"""perftest's own is 18515. Below the ports that the kernel gives out, and eight for each node."""


@dataclass(frozen=True)
class Flow:
    """One half sending to a neighbour's; `port` is the TCP port by which the two tools meet."""

    here: Address
    there: Address
    port: int


def tests(rack: Rack, node: str) -> list[tuple[Flow, ...]]:
    """What a node measures: each of its halves alone, then both of a port at once where the cable needs both.

    Each half sends to the next node that shares its subnet, so that every direction of every cable is used by one
    test at a time, although all nodes measure side by side.
    """
    rank = {name: place for place, name in enumerate(rack.nodes)}
    first_port = _FIRST_PORT + 8 * rank[node]
    singles = [Flow(here, there, first_port + n) for n, (here, there) in enumerate(_nexts(rack, node, rank))]
    carrying = used(rack, node)
    pairs = []
    for first, second in pairwise(singles):
        same = first.here.half.port == second.here.half.port and first.there.half.port == second.there.half.port
        if same and first.here in carrying and second.here in carrying:
            pairs.append(tuple(Flow(flow.here, flow.there, flow.port + 4) for flow in (first, second)))
    return [*((flow,) for flow in singles), *pairs]


def _nexts(rack: Rack, node: str, rank: Mapping[str, int]) -> list[tuple[Address, Address]]:
    nearest: dict[Address, Address] = {}
    for here, there in reachable(rack):
        if here.half.node != node:
            continue

        def distance(address: Address) -> int:
            return (rank[address.half.node] - rank[node]) % len(rank)

        if here not in nearest or distance(there) < distance(nearest[here]):
            nearest[here] = there
    return list(nearest.items())


_COMMON = f"""\
gid_index={GID_INDEX}
type ib_write_bw >/dev/null 2>&1 || {{ echo "ib_write_bw is not there (package perftest)" >&2; exit 1; }}
look() {{
    echo "$1 link $(ethtool "$2" 2>/dev/null | sed -n 's/.*Speed: \\([0-9]*\\)Mb.*/\\1/p')"
    echo "$1 lanes $(lspci -vv -s "$3" 2>/dev/null | sed -n 's/.*LnkSta:.*Width x\\([0-9]*\\).*/\\1/p')"
}}
rdma_of() {{
    name=$(ls "/sys/class/net/$1/device/infiniband" 2>/dev/null | head -n 1)
    echo "${{name:-$2}}"
}}
tool() {{
    if number=$("$gid_index" "$1" 2>/dev/null); then gid="-x $number"; else gid=''; fi
    $apart timeout {LONGEST} ib_write_bw -d "$1" -D {SECONDS} -q 4 --report_gbits $gid -p "$2" -s 1048576 ${{3:+"$3"}}
}}
"""
# In a session of its own: sudo ends what is left on its terminal.
_SERVER = """\
apart=setsid
serve() {
    look "$1" "$2" "$3"
    log=$(mktemp)
    { exec >"$log" 2>&1 </dev/null; tool "$(rdma_of "$2" "$4")" "$5"; } &
    tries=0
    until ss -Hltn "sport = :$5" | grep -q .; do
        tries=$((tries + 1))
        if [ "$tries" -gt 50 ] || ! kill -0 $! 2>/dev/null; then cat "$log" >&2; rm -f "$log"; exit 1; fi
        sleep 0.2
    done
    rm -f "$log"
}
"""
_CLIENT = """\
apart=''
sent() { cat "/sys/class/infiniband/$1/ports/1/counters/port_xmit_data" 2>/dev/null || true; }
measure() {
    look "$1" "$2" "$3"
    name=$(rdma_of "$2" "$4")
    before=$(sent "$name")
    said=$(tool "$name" "$5" "$6" 2>&1) && code=0 || code=$?
    echo "$1 sent $before $(sent "$name")"
    echo "$1 exit $code"
    printf '%s\\n' "$said" | sed "s/^/$1 said /"
}
"""


def server(flows: Sequence[Flow]) -> str:
    """Shell text for the receiving node: starts its tools, and ends when they listen."""
    calls = [f"serve {tag} {_words(flow.there)} {flow.port}" for tag, flow in enumerate(flows)]
    return "\n".join([f"{_COMMON}{_SERVER}", *calls])


def client(flows: Sequence[Flow]) -> str:
    """Shell text for the sending node: all flows at the same time."""
    calls = [
        f"measure {tag} {_words(flow.here)} {flow.port} {flow.there.interface.ip} &" for tag, flow in enumerate(flows)
    ]
    return "\n".join([f"{_COMMON}{_CLIENT}", *calls, "wait"])


def _words(address: Address) -> str:
    half = address.half
    # The halves of a port hang on two PCIe domains (Half).
    return f"{half.interface} {('0000', '0002')[half.index]}:01:00.{half.port} {device(half, {})}"


_ROW = re.compile(r"^\d+ said\s+\d+\s+\d+\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s*$", re.MULTILINE)
"""A row of ib_write_bw: bytes, iterations, peak, average, messages."""


def measured(rack: Rack, flows: Sequence[Flow], here: str, there: str) -> Measured:
    """The figures in what the two ends printed. Raises ValueError with what the tool said when it has none."""
    figures, counted = [], []
    for tag in range(len(flows)):
        own = "\n".join(line for line in here.splitlines() if line.startswith(f"{tag} "))
        rows = _ROW.findall(own)
        if f"{tag} exit 0" not in own.splitlines() or not rows:
            said = [line.partition(" said ")[2].strip() for line in own.splitlines() if " said " in line]
            raise ValueError(next((line for line in reversed(said) if line), "ib_write_bw says nothing"))
        figures.append(float(rows[-1]))
        count = re.search(rf"^{tag} sent (\d+) (\d+)$", own, re.MULTILINE)
        if count:
            counted.append(moved(int(count[1]), int(count[2]), figures[-1], SECONDS))
    port = next(port for port in rack.cabling.ports_of(flows[0].here.half.node) if flows[0].here.half in port.halves)
    cable = rack.cabling.cable_of(port)
    links = [int(speed) / 1000 for speed in re.findall(r"^\d+ link (\d+)$", f"{here}\n{there}", re.MULTILINE)]
    lanes = [int(width) for width in re.findall(r"^\d+ lanes (\d+)$", f"{here}\n{there}", re.MULTILINE)]
    return Measured(
        tuple(figures),
        leg=cable.gbps if cable else 0,
        link=min(links, default=None),
        lanes=min(lanes, default=None),
        moved=all(counted) if counted else None,
        switched=rack.cabling.leg_of(port) is not None,
    )


def about(flows: Sequence[Flow]) -> str:
    """From where to where, for a person."""
    halves = "+".join(flow.here.half.interface for flow in flows)
    return f"{flows[0].here.half.node}/{halves} -> {flows[0].there.half.node}"
