"""The words that every format of a picture uses. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .model import Edge, HalfBox, NodeBox, Picture, State, SwitchBox

COLOURS: dict[State, str] = {"declared": "#3b4a5a", "fine": "#1a7f37", "mismatch": "#c0271d", "unknown": "#8a5a00"}
"""Of a link's line and words, all dark enough on white; the state is always told in words too."""


def lanes(numbers: Sequence[int]) -> str:
    """ "lanes 3-4", "lane 1"; empty for a cable between nodes."""
    if not numbers:
        return ""
    return f"lanes {numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else f"lane {numbers[0]}"


def wanted(edge: Edge) -> list[str]:
    """What a link is declared to be: leg, lanes, speed, MTU."""
    leg = [edge.b.partition("/")[2], lanes(edge.wanted.lanes)] if edge.wanted.lanes else []
    return [*leg, f"{edge.wanted.gbps}G", f"MTU {edge.wanted.mtu}"]


def findings(edge: Edge) -> Iterator[tuple[State, str]]:
    """What was found at a link: the state that each finding speaks for, and its words, which begin with that state."""
    yield from (("mismatch", f"mismatch: {text}") for text in edge.mismatches)
    yield from (("unknown", f"unknown: {text}") for text in edge.unknown)
    if edge.state == "fine":
        yield "fine", "fine"


def half(box: HalfBox) -> str:
    """An interface of a node with its VLAN, if it has one."""
    return box.interface if box.vlan is None else f"{box.interface} VLAN {box.vlan} ({box.device})"


def node(box: NodeBox) -> str:
    """What stands below the name of a node."""
    return f"{box.vendor} {box.address}"


def switch(box: SwitchBox) -> str:
    """What stands beside the name of a switch."""
    return f"{box.address}, MTU {box.mtu}, L2MTU {box.l2mtu}"


def verdict(picture: Picture) -> str:
    """How many links there are, and how many in which state."""
    links = f"{len(picture.edges)} link{'' if len(picture.edges) == 1 else 's'}"
    if not picture.compared:
        return f"{links} as declared, not compared with what is there"
    states: tuple[State, ...] = ("fine", "mismatch", "unknown")
    return f"{links}: {', '.join(f'{picture.count(state)} {state}' for state in states)}"


def title(picture: Picture) -> str:
    """What the picture shows, and the verdict."""
    return f"{picture.rack} ({picture.topology}): {verdict(picture)}"
