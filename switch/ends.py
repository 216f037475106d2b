"""Both ends of a leg, and which node is at the end of which: what they say, compared. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparkrack.fleet import Half, Leg, Port, Rack, Split

from .cages import fec_of
from .menus import Row
from .values import gbps

_MARK = "sparkrack-half "
_FEC = {"fec91": ("RS",), "fec74": ("BaseR", "BASER")}
"""What ethtool calls the switch's FEC (ethtool(8), --show-fec)."""

HEARD_SECONDS = 5.0
"""How long the switch may take to list an address that its chip has learned (inferred; no source gives a figure)."""


@dataclass(frozen=True)
class End:
    """What a node says of one half of its port. mac: in lower case; "" when there is no such interface.
    link, speed, fec: as ethtool prints them, None when it does not. why: what ethtool complained of."""

    half: Half
    mac: str
    link: str | None
    speed: str | None
    fec: str | None
    why: str


def question(rack: Rack, ports: Sequence[Port]) -> str:
    """A shell script that lets each half of these ports say something, so that the switch learns where it is,
    and then tells of them all."""
    halves = [half for port in ports for half in port.halves]
    # By address, not by interface: the route knows whether the address stands on a VLAN of the half. An address
    # that nobody has does as well, since asking for it is a broadcast.
    pings = [f"ping -q -n -c 2 -i 0.2 -W 1 {peer} >/dev/null 2>&1 &" for peer in _peers(rack, halves)]
    asks = [
        f"echo '{_MARK}{name}'; ethtool {name} 2>&1; ethtool --show-fec {name} 2>/dev/null"
        for name in (half.interface for half in halves)
    ]
    return "\n".join([*pings, "wait", "ip -j link show", *asks, "true"])


def _peers(rack: Rack, halves: Sequence[Half]) -> Iterator[str]:
    known = {address.interface.ip for address in rack.addresses}
    for address in rack.addresses:
        if address.half in halves:
            network = address.interface.network
            others = (ip for ip in network.hosts() if ip != address.interface.ip)
            yield str(next((ip for ip in others if ip in known), network[-2]))


def answer(output: str, ports: Sequence[Port]) -> dict[Half, End]:
    """What a node answered to `question`. ValueError when it is no answer to it."""
    first, *sections = output.split(_MARK)
    try:
        macs = {link["ifname"]: str(link.get("address", "")).lower() for link in json.loads(first)}
    except (ValueError, TypeError, KeyError):
        raise ValueError("`ip -j link show` gives no list of links") from None
    texts = {section.splitlines()[0].strip(): section for section in sections}
    return {half: _end(half, macs, texts.get(half.interface, "")) for port in ports for half in port.halves}


def _end(half: Half, macs: Mapping[str, str], text: str) -> End:
    lines = [line.strip() for line in text.splitlines()[1:]]
    fields = dict(line.split(": ", 1) for line in lines if ": " in line)
    fec = next((fields[name] for name in ("Active FEC encoding", "Active FEC encodings") if name in fields), None)
    why = next((line for line in lines if line), "ethtool says nothing")
    return End(
        half, macs.get(half.interface, ""), fields.get("Link detected"), fields.get("Speed"), fec and fec.strip(), why
    )


def switch_end(leg: Leg, split: Split, row: Row) -> str:
    """What is wrong with a leg by the switch's monitor; "" = nothing."""
    wrong = []
    if row.get("status") != "link-ok":
        wrong.append(f"status {row.get('status', 'unknown')}, wanted link-ok")
    if gbps(row.get("rate")) != leg.gbps:
        wrong.append(f"rate {row.get('rate', 'unknown')}, wanted {leg.gbps}Gbps")
    fec = fec_of(split)
    if fec != "auto" and row.get("fec") != fec:
        wrong.append(f"fec {row.get('fec', 'unknown')}, wanted {fec}")
    return "; ".join(wrong)


def node_end(leg: Leg, end: End) -> str:
    """What is wrong with a half by the node's ethtool; "" = nothing."""
    name, wanted = end.half.interface, f"{leg.gbps * 1000}Mb/s"
    if end.link is None:
        return f"ethtool {name}: {end.why}"
    if end.link != "yes":
        return f"{name} sees no link"
    return "" if end.speed == wanted else f"{name} runs at {end.speed}, wanted {wanted}"


def disagreement(row: Row, ends: Sequence[End]) -> str:
    """Where a link's two ends do not say the same of it; "" = nowhere. A forced port of the switch calls itself
    up whatever hangs on it (reported, RouterOS 7.20)."""
    here, rate, fec = row.get("status") == "link-ok", gbps(row.get("rate")), row.get("fec")
    said = []
    for end in ends:
        name = end.half.interface
        there = end.link == "yes"
        if here != there:
            said.append(f"the switch says {row.get('status', 'unknown')}, {name} sees {'a' if there else 'no'} link")
        elif here and rate is not None and end.speed != f"{rate * 1000:.0f}Mb/s":
            said.append(f"the switch says {row.get('rate')}, {name} says {end.speed or 'nothing'}")
        # A driver that does not tell its FEC contradicts nobody.
        elif here and fec in _FEC and end.fec is not None and end.fec not in _FEC[fec]:
            said.append(f"the switch says FEC {fec}, {name} says {end.fec}")
    return "; ".join(said)


def whereabouts(ends: Sequence[End], hosts: Mapping[str, str]) -> dict[str, list[str]]:
    """The interfaces of the switch behind which a port's halves were heard, each with the halves' names; "" for
    halves that were not."""
    found: dict[str, list[str]] = {}
    for end in ends:
        place = hosts.get(end.mac, "") if end.mac else ""
        found.setdefault(place, []).append(end.half.interface)
    return found


Where = Callable[[Port], Mapping[str, list[str]] | None]
"""The whereabouts of another port; None when its node does not tell."""


def misplaced(rack: Rack, leg: Leg, port: Port, found: Mapping[str, list[str]], where: Where) -> Iterator[str]:
    """What is wrong with the place of a port that should be on `leg`. Whoever should be where it is was perhaps
    plugged in its stead, so that one's place is told too."""
    for interface, halves in found.items():
        if interface == leg.interface:
            continue
        if not interface:
            yield f"{port.node} should be on leg {leg}; the switch hears {' and '.join(halves)} behind no port"
            continue
        place = f"leg {leg.switch}/{interface}"
        other = rack.cabling.port_at(interface, leg.switch)
        if other is None:
            yield f"{_node(rack, port)} is on {place}, where rack.yaml has no node; it should be on leg {leg}"
            continue
        there = f"{_node(rack, port)} is on {place}, where {_node(rack, other)} should be"
        yield f"{there}; {_whereabouts(rack, leg, other, where)}"


def _whereabouts(rack: Rack, leg: Leg, other: Port, where: Where) -> str:
    places = where(other)
    heard = [interface for interface in places or {} if interface]
    if not heard:
        return f"{_node(rack, other)} {'is heard behind no port' if places else 'does not tell where it is'}"
    words = []
    for interface in heard:
        owner = rack.cabling.port_at(interface, leg.switch)
        whose = f", where {_node(rack, owner)} should be" if owner and owner != other else ""
        words.append(f"leg {leg.switch}/{interface}{whose}")
    return f"{_node(rack, other)} is on {' and '.join(words)}"


def _node(rack: Rack, port: Port) -> str:
    """A node that holds one cable is named without its port."""
    return port.node if len(rack.cabling.ports_of(port.node)) == 1 else f"{port.node} port {port.number}"


def grown(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """The counters that did not stand still."""
    return [
        f"{name} {'grew by' if count > before[name] else 'fell by'} {abs(count - before[name])}"
        for name, count in after.items()
        if name in before and count != before[name]
    ]
