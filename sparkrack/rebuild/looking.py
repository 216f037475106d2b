"""How nodes stand to us at each point of a rebuild, without knocking more often than needed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from sparkrack.fleet import load
from sparkrack.rebuild.service import Service, Standing, asked

FRESH = 10.0
"""For so many seconds what a node has said still counts."""


class Looking:
    """Asks nodes. What was found right before counts once: each question to a node that does not take our key is a
    failed login there, and sshd from 9.8 on shuts out who fails too often."""

    def __init__(self, file: Path, question: str, patience: float, found: Mapping[str, Service]) -> None:
        """`file`: of the rack, read anew each time. `found`: what was found just now."""
        self._file, self._question, self._patience = file, question, patience
        away = any(service.standing is Standing.AWAY for service in found.values())
        self._found = {} if away else dict(found)
        self._until = time.monotonic() + FRESH

    def __call__(self, names: Sequence[str]) -> dict[str, Service]:
        """How these nodes stand."""
        found, self._found = self._found, {}
        if found.keys() == set(names) and time.monotonic() < self._until:
            return found
        return asked(load(self._file), names, self._question, self._patience)
