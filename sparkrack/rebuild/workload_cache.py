"""Cache of the workloads of nodes during a rebuild, which avoids unneeded logins."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from core.model import load
from sparkrack.rebuild.workloads import NodeReachability, NodeWorkload, query_workloads

FRESH = 10.0
"""Seconds for which an answer of a node is valid."""


class WorkloadCache:
    """Asks nodes. What was found right before counts once: each question to a node that does not take our key is a
    failed login there, and sshd from 9.8 on blocks an address with too many."""

    def __init__(self, file: Path, question: str, timeout: float, found: Mapping[str, NodeWorkload]) -> None:
        """`file`: of the rack, read again each time. `found`: the current answers."""
        self._file, self._question, self._timeout = file, question, timeout
        self._found = dict(found)
        self._until = time.monotonic() + FRESH

    def __call__(self, names: Sequence[str], others: Sequence[str]) -> dict[str, NodeWorkload]:
        """Return the workloads of these nodes; the others are asked once, whatever they answer."""
        found, self._found = self._found, {}
        valid = found.keys() == {*names, *others} and time.monotonic() < self._until
        # A node that was off may answer by now.
        if valid and not any(found[name].reachability is NodeReachability.AWAY for name in names):
            return found
        return query_workloads(load(self._file), names, self._question, self._timeout, others)
