"""Distribution of an image or a model between nodes: source, receiver and address of each copy. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from core.model import Rack, reachable

SLOTS = 2
"""Number of nodes that may copy one thing from one node at a time: more would only share its link and disk."""


@dataclass(frozen=True)
class Route:
    """A way from a node that has a thing to one that lacks it: `address` is where the taker reaches the source."""

    taker: str
    source: str
    address: str
    fabric: bool

    def __str__(self) -> str:
        return f"{self.source} ({'fabric' if self.fabric else 'management'})"

    def ssh(self, user: str) -> list[str]:
        """Return the command by which root of the taker runs another one on the source, as a user who may log in there.

        Encryption in hardware comes first; ciphers that the other side does not offer are skipped.
        """
        return [
            *("runuser", "-u", user, "--", "ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
            *("-o", "ServerAliveInterval=15", "-o", "Compression=no", "-o", "Ciphers=^aes128-gcm@openssh.com"),
            self.address,
        ]


@dataclass(frozen=True)
class Pull:
    """From outside. `last_resort`: no node of the rack could give it."""

    last_resort: bool = False

    def __str__(self) -> str:
        return "outside"


@dataclass(frozen=True)
class Wait:
    """Nothing to do now."""


@dataclass(frozen=True)
class Routes:
    """All routes of a rack."""

    rack: Rack

    @cached_property
    def rank(self) -> dict[str, int]:
        """Position of each node in rack.yaml."""
        return {name: place for place, name in enumerate(self.rack.nodes)}

    @cached_property
    def _fabric_routes(self) -> dict[tuple[str, str], list[Route]]:
        found: dict[tuple[str, str], list[Route]] = {}
        for here, there in reachable(self.rack):
            pair = (here.half.node, there.half.node)
            found.setdefault(pair, []).append(Route(*pair, str(there.interface.ip), fabric=True))
        return found

    def fabric(self, taker: str, source: str) -> list[Route]:
        """The routes over the fabric: none when the two share no subnet."""
        return self._fabric_routes.get((taker, source), [])

    def management(self, taker: str, source: str) -> Route:
        """The management route, which always exists."""
        return Route(taker, source, str(self.rack.nodes[source].address), fabric=False)


# claim: images.copy-speed
def choose(
    roads: Routes,
    taker: str,
    sources: Mapping[str, int],
    pending: Collection[str],
    pulling: str | None,
    failed: Collection[Route],
) -> Route | Pull | Wait:
    """Choose the next step of a node that lacks an image or a model.

    `sources`: the nodes that have it, each with its number of current receivers; `pending`: the nodes that will have
    it; `pulling`: the node that fetches it from outside; `failed`: routes that have not worked.
    """
    ranked = sorted(sources, key=lambda name: (sources[name], roads.rank[name]))
    if not sources:
        first = min({*pending, taker}, key=roads.rank.__getitem__)
        return Pull() if pulling is None and first == taker else Wait()
    fabric = _comes_over_fabric(roads, taker, sources, pending, failed)
    if fabric:
        routes = [route for source in ranked for route in roads.fabric(taker, source)]
    else:
        routes = [roads.management(taker, source) for source in ranked]
    routes = [route for route in routes if route not in failed]
    if not routes and not fabric:
        return Pull(last_resort=True)
    return next((route for route in routes if sources[route.source] < SLOTS), Wait())


def _comes_over_fabric(
    roads: Routes, taker: str, sources: Collection[str], pending: Collection[str], failed: Collection[Route]
) -> bool:
    """Return whether it can reach a node over the fabric, from neighbour to neighbour: then it waits
    for that.
    """
    reached, edge = set(sources), set(sources)
    while edge and taker not in reached:
        edge = {
            node
            for node in {*pending, taker} - reached
            if any(route not in failed for source in edge for route in roads.fabric(node, source))
        }
        reached |= edge
    return taker in reached


def forecast_chain(roads: Routes, sources: Collection[str], lacking: Collection[str]) -> dict[str, Route | Pull]:
    """Return the source of each node in `lacking` when no route fails.

    A node passes on each part as soon as it has it, so that all nodes receive at the same time.
    """
    plan: dict[str, Route | Pull] = {}
    receivers = dict.fromkeys(sources, 0)
    left = sorted(lacking, key=roads.rank.__getitem__)
    while left:
        for node in left:
            move = choose(roads, node, receivers, left, None, ())  # after the first pull there is a source
            if isinstance(move, Wait):
                continue
            plan[node] = move
            receivers[node] = 0
            if isinstance(move, Route):
                receivers[move.source] += 1
        left = [node for node in left if node not in plan]
    return plan
