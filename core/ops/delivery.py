"""Bring one thing, an image or a model, to each node of a run: from a node that has it, else from outside."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import gevent

from core.ops import distribution
from core.ops.detached_unit import POLL_SECONDS, TransferStoppedError
from core.ops.distribution import Route, Routes

GRACE = 30.0
"""Seconds in which all nodes of a run should have begun; after that, those that have not are not waited for. Without
`--parallel` or `--serial` all begin at once."""


@dataclass(kw_only=True)
class Transfers(ABC):
    """One thing during its distribution. `expected`: nodes that need it; `begun`: nodes that have begun; `pulling`: the
    node that fetches it from outside; `broken`: why it cannot be delivered; `failed`: routes that have not worked.
    """

    expected: set[str]
    begun: set[str] = field(default_factory=set)
    pulling: str | None = None
    broken: str | None = None
    failed: set[Route] = field(default_factory=set)

    @abstractmethod
    def sources_for(self, taker: str) -> Mapping[str, int]:
        """Return the nodes that can give it to this one, each with its number of receivers."""

    def leave(self, node: str) -> None:
        """Record that other nodes need not wait for this node any more."""
        self.begun.discard(node)
        self.expected.discard(node)
        if self.pulling == node:
            self.pulling = None

    def pending(self, since: float) -> set[str]:
        """Return the nodes that will have it; `since`: when the one that asks began, by the monotonic clock."""
        return self.begun if time.monotonic() - since > GRACE else self.begun | self.expected

    @contextmanager
    def delivery(self, node: str, name: str) -> Iterator[None]:
        """The delivery to one node; the name of the thing is put before the reason why it stopped."""
        self.begun.add(node)
        try:
            yield
        except TransferStoppedError as stopped:
            raise TransferStoppedError(f"{name}: {stopped}") from None
        finally:
            self.leave(node)

    @contextmanager
    def pull(self, node: str, why: str, *, last_resort: bool) -> Iterator[None]:
        """One node fetches it from outside for all, or as the last resort for itself; `why`: it could not, and so none
        gets it.
        """
        if not last_resort:
            self.pulling = node
        try:
            yield
        except TransferStoppedError:
            if not last_resort:
                self.broken = why
            raise


@dataclass(kw_only=True)
class ChainTransfers(Transfers):
    """One thing that a receiver passes on while it comes.

    `holders`: nodes that have it. `receiving`: nodes that fetch it now, each with the node that it takes it from, None
    for one that fetches it from outside. `started`: those of them whose transfer runs.
    """

    holders: set[str]
    receiving: dict[str, str | None] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)

    def leave(self, node: str) -> None:
        """Record that other nodes need not wait for this node any more."""
        super().leave(node)
        self.stop_receiving(node)

    def stop_receiving(self, node: str) -> None:
        """Record that a node fetches it no more."""
        self.receiving.pop(node, None)
        self.started.discard(node)

    def wait_for_start(self, source: str) -> bool:
        """Wait until the transfer of a source runs. Returns whether the source can give it."""
        while source in self.receiving and source not in self.started:
            gevent.sleep(POLL_SECONDS)
        return source in self.started | self.holders

    def sources_for(self, taker: str) -> dict[str, int]:
        """The nodes that can give it to this one, each with its number of receivers: not those that get it from this
        one, directly or over others.
        """
        givers = self.holders | self.receiving.keys()
        counts = {name: 0 for name in givers if not self._comes_from(name, taker)}
        for source in self.receiving.values():
            if source in counts:
                counts[source] += 1
        return counts

    def _comes_from(self, node: str | None, taker: str) -> bool:
        passed: set[str] = set()
        while node is not None and node not in passed:
            if node == taker:
                return True
            passed.add(node)
            node = None if node in self.holders else self.receiving.get(node)
        return False


def fetch(
    roads: Routes, node: str, transfers: Transfers, copy: Callable[[Route], bool], pull: Callable[[bool], None]
) -> None:
    """Fetch a thing to a node, and wait for a source where one will be there.

    copy: takes it over a route, and returns whether it came. pull: fetches it from outside; whether as the last resort.
    Raises TransferStoppedError.
    """
    since = time.monotonic()
    while True:
        sources = transfers.sources_for(node)
        if transfers.broken and not sources:
            raise TransferStoppedError(transfers.broken)
        pending = transfers.pending(since)
        match distribution.choose(roads, node, sources, pending, transfers.pulling, transfers.failed):
            case Route() as route:
                if copy(route):
                    return
            case distribution.Pull(last_resort):
                pull(last_resort)
                return
            case distribution.Wait():
                pass
        gevent.sleep(POLL_SECONDS)
