"""Comparison of both ends of a leg, and the node at its end. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from core.model import Half, Leg, Port, Rack
from core.probes import protocol
from core.probes.links import EthtoolReport, IpLink, parse_ethtool, parse_ip_links
from core.routeros.menus import Row
from core.routeros.values import gbps

_LINKS = "links"
_FEC = {"fec91": ("RS",), "fec74": ("BaseR", "BASER"), "off": ("Off", "None")}
"""ethtool's names of the FEC that the switch's monitor shows (ethtool(8), --show-fec)."""

# claim: switch.bridge-host.seconds
HEARD_SECONDS = 5.0
"""Seconds until the switch lists an address that its chip has learned (inferred; no source gives a figure)."""


@dataclass(frozen=True)
class LinkEnd:
    """The node's report of one half of its port. mac: in lower case; "" when there is no such interface. link, speed,
    fec: as ethtool prints them, None when it does not. why: ethtool's error.
    """

    half: Half
    mac: str
    link: str | None
    speed: str | None
    fec: str | None
    why: str

    @property
    def report(self) -> EthtoolReport:
        """What ethtool printed, in its own words."""
        return EthtoolReport(self.link, self.speed, self.fec)


def node_end_script(rack: Rack, ports: Sequence[Port]) -> str:
    """Return a shell script that sends a frame from each half of these ports, so that the switch learns its location,
    and then reports the state of all.
    """
    halves = [half for port in ports for half in port.halves]
    # By address, not by interface: the route determines whether the address is on a VLAN of the half. An unused
    # address works as well, since the ARP request for it is a broadcast.
    pings = [f"ping -q -n -c 2 -i 0.2 -W 1 {peer} >/dev/null 2>&1 &" for peer in _peer_addresses(rack, halves)]
    questions = {_LINKS: "ip -d -j address show"}
    # The complaint of ethtool is the reason when it reports nothing.
    questions |= {
        name: f"ethtool {name} 2>&1; ethtool --show-fec {name}" for name in (half.interface for half in halves)
    }
    return "\n".join([*pings, "wait", protocol.script(questions)])


def _peer_addresses(rack: Rack, halves: Sequence[Half]) -> Iterator[str]:
    known = {address.interface.ip for address in rack.addresses}
    for address in rack.addresses:
        if address.half in halves:
            network = address.interface.network
            others = (ip for ip in network.hosts() if ip != address.interface.ip)
            yield str(next((ip for ip in others if ip in known), network[-2]))


def parse_node_end(output: str, ports: Sequence[Port]) -> dict[Half, LinkEnd]:
    """Parse a node's answer to the script. Raises ValueError for an invalid answer."""
    return node_ends(protocol.parse_commands(output), ports)[0]


def node_ends(
    answers: Mapping[str, protocol.Answer], ports: Sequence[Port]
) -> tuple[dict[Half, LinkEnd], dict[str, IpLink]]:
    """Parse the halves of these ports, and all interfaces of the node, from its answers. Raises ValueError."""
    answer = answers.get(_LINKS)
    try:
        links = parse_ip_links(answer.text if answer and not answer.code else "")
    except ValueError:
        raise ValueError("`ip -j address show` gives no list of devices") from None
    halves = (half for port in ports for half in port.halves)
    return {half: _link_end(half, links.get(half.interface), answers.get(half.interface)) for half in halves}, links


def _link_end(half: Half, link: IpLink | None, answer: protocol.Answer | None) -> LinkEnd:
    # Whatever the exit status: ethtool fails for a setting that a driver does not report, and prints the others.
    report = parse_ethtool(answer.text if answer else "")
    why = next((line.strip() for line in answer.lines if line.strip()), "") if answer else ""
    mac = link.mac if link else ""
    return LinkEnd(half, mac, report.link, report.speed, report.fec, why or "ethtool prints nothing")


def switch_end(leg: Leg, fec: str, row: Row) -> str:
    """Return the problem of a leg with the desired `fec-mode` by the switch's monitor; "" = none. What the switch runs
    with `auto` is not compared: RouterOS chooses it.
    """
    wrong = []
    if row.get("status") != "link-ok":
        wrong.append(f"status {row.get('status', 'unknown')}, wanted link-ok")
    if gbps(row.get("rate")) != leg.gbps:
        wrong.append(f"rate {row.get('rate', 'unknown')}, wanted {leg.gbps}Gbps")
    if fec != "auto" and row.get("fec") != fec:
        wrong.append(f"fec {row.get('fec', 'unknown')}, wanted {fec}")
    return "; ".join(wrong)


# claim: fabric.ethtool-speed
def node_end(leg: Leg, end: LinkEnd) -> str:
    """Return the problem of a half by the node's ethtool; "" = none."""
    name, wanted = end.half.interface, f"{leg.gbps * 1000}Mb/s"
    if end.link is None:
        return f"ethtool {name}: {end.why}"
    if end.link != "yes":
        return f"{name} sees no link"
    return "" if end.speed == wanted else f"{name} runs at {end.speed}, wanted {wanted}"


# claim: switch.fec.both-ends
def disagreement(row: Row, ends: Sequence[LinkEnd]) -> str:
    """Return the disagreement between a link's two ends; "" = none. A forced port of the switch reports link up
    whatever is connected to it (reported, RouterOS 7.20).
    """
    here, rate, fec = row.get("status") == "link-ok", gbps(row.get("rate")), row.get("fec")
    mismatches = []
    for end in ends:
        name = end.half.interface
        there = end.link == "yes"
        if here != there:
            mismatches.append(
                f"the switch reports {row.get('status', 'unknown')}, {name} sees {'a' if there else 'no'} link"
            )
        elif here and rate is not None and end.speed != f"{rate * 1000:.0f}Mb/s":
            mismatches.append(f"the switch reports {row.get('rate')}, {name} reports {end.speed or 'nothing'}")
        # A driver that does not report its FEC is not a disagreement.
        elif here and fec in _FEC and end.fec is not None and end.fec not in _FEC[fec]:
            mismatches.append(f"the switch reports FEC {fec}, {name} reports {end.fec}")
    return "; ".join(mismatches)


def mac_locations(ends: Sequence[LinkEnd], hosts: Mapping[str, str]) -> dict[str, list[str]]:
    """The interfaces of the switch behind which a port's halves were heard, each with the halves' names; "" for
    halves that were not."""
    found: dict[str, list[str]] = {}
    for end in ends:
        place = hosts.get(end.mac, "") if end.mac else ""
        found.setdefault(place, []).append(end.half.interface)
    return found


Where = Callable[[Port], Mapping[str, list[str]] | None]
"""Function that returns the location of another port; None when its node does not report it."""


def miscabled(rack: Rack, leg: Leg, port: Port, found: Mapping[str, list[str]], where: Where) -> Iterator[str]:
    """Yield the problems of the location of a port that should be on `leg`. The declared port of the actual leg may
    have been swapped with it, so its location is reported too.
    """
    for interface, halves in found.items():
        if interface == leg.interface:
            continue
        if not interface:
            yield f"{port.node} should be on leg {leg}; the switch hears {' and '.join(halves)} behind no port"
            continue
        place = f"leg {leg.switch}/{interface}"
        other = rack.cabling.port_at(interface, leg.switch)
        if other is None:
            yield f"{_node_text(rack, port)} is on {place}, where rack.yaml has no node; it should be on leg {leg}"
            continue
        there = f"{_node_text(rack, port)} is on {place}, where {_node_text(rack, other)} should be"
        yield f"{there}; {_describe_heard_interfaces(rack, leg, other, where)}"


def _describe_heard_interfaces(rack: Rack, leg: Leg, other: Port, where: Where) -> str:
    places = where(other)
    heard = [interface for interface in places or {} if interface]
    if not heard:
        return f"{_node_text(rack, other)} {'is heard behind no port' if places else 'does not report where it is'}"
    words = []
    for interface in heard:
        owner = rack.cabling.port_at(interface, leg.switch)
        whose = f", where {_node_text(rack, owner)} should be" if owner and owner != other else ""
        words.append(f"leg {leg.switch}/{interface}{whose}")
    return f"{_node_text(rack, other)} is on {' and '.join(words)}"


def _node_text(rack: Rack, port: Port) -> str:
    """A node that holds one cable is named without its port."""
    return port.node if len(rack.cabling.ports_of(port.node)) == 1 else f"{port.node} port {port.number}"


def grown_counters(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """Return the counters that increased or decreased."""
    return [
        f"{name} {'grew by' if count > before[name] else 'fell by'} {abs(count - before[name])}"
        for name, count in after.items()
        if name in before and count != before[name]
    ]
