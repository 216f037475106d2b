"""The words that every format of a picture uses. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparkrack.topology.model import Edge, HalfBox, NodeBox, State, SwitchBox, Topology

COLOURS: dict[State, str] = {"declared": "#3b4a5a", "fine": "#1a7f37", "mismatch": "#c0271d", "unknown": "#8a5a00"}
"""Colours of a link's line and text, all dark enough on white; the state is always a word too."""


def lanes(numbers: Sequence[int]) -> str:
    """ "lanes 3-4", "lane 1"; empty for a cable between nodes."""
    if not numbers:
        return ""
    return f"lanes {numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else f"lane {numbers[0]}"


def wanted(edge: Edge) -> list[str]:
    """Return the declared values of a link: leg, lanes, speed, MTU."""
    leg = [edge.b.partition("/")[2], lanes(edge.wanted.lanes)] if edge.wanted.lanes else []
    return [*leg, f"{edge.wanted.gbps}G", f"MTU {edge.wanted.mtu}"]


def actual(edge: Edge) -> list[str]:
    """Return the values of a link that its hosts report, each distinct value once; empty when none is known."""
    if edge.seen is None:
        return []
    leg, halves = edge.seen.leg, edge.seen.halves
    carriers = [half.carrier for half in halves if half.carrier is not None]
    if leg and leg.status:
        carriers.append(leg.status == "link-ok")
    words = [] if all(carriers) else ["no carrier"] if not any(carriers) else ["carrier at some ends only"]
    speeds = dict.fromkeys(end.gbps for end in (*halves, *((leg,) if leg else ())) if end.gbps is not None)
    sizes = dict.fromkeys(half.mtu for half in halves if half.mtu is not None)
    behind = [f"switch hears the node on {name}" for name in edge.seen.behind or ()]
    return [
        *words,
        *([" and ".join(f"{speed:g}G" for speed in speeds)] if speeds else []),
        *([f"MTU {' and '.join(map(str, sizes))}"] if sizes else []),
        *behind,
    ]


def findings(edge: Edge) -> Iterator[tuple[State, str]]:
    """Yield the findings at a link: the state of each finding, and its text, which begins with that state."""
    yield from (("mismatch", f"mismatch: {text}") for text in edge.mismatches)
    yield from (("unknown", f"unknown: {text}") for text in edge.unknown)
    if edge.state == "fine":
        yield "fine", "fine"


def half(box: HalfBox) -> str:
    """An interface of a node with its VLAN, if it has one."""
    return box.interface if box.vlan is None else f"{box.interface} VLAN {box.vlan} ({box.device})"


def node(box: NodeBox) -> str:
    """Return the text below the name of a node."""
    return f"{box.vendor} {box.address}" if box.vendor else box.address


def switch(box: SwitchBox) -> str:
    """Return the text beside the name of a switch."""
    return f"{box.address}, MTU {box.mtu}, L2MTU {box.l2mtu}"


def verdict(picture: Topology) -> str:
    """Return the number of links, and how many are in which state."""
    links = f"{len(picture.edges)} link{'' if len(picture.edges) == 1 else 's'}"
    if not picture.compared:
        return f"{links} as declared, not compared with what is there"
    states: tuple[State, ...] = ("fine", "mismatch", "unknown")
    return f"{links}: {', '.join(f'{picture.count(state)} {state}' for state in states)}"


def title(picture: Topology) -> str:
    """Return the subject of the picture, and the verdict."""
    return f"{picture.rack} ({picture.topology}): {verdict(picture)}"
