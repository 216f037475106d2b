"""Interface by which code that asks hosts reports how far it is with each of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

WITHOUT_PROGRESS = "SPARKRACK_WITHOUT_PROGRESS"
"""Environment variable of a process that shows no progress, since the one that started it shows none."""


class ProgressObserver(Protocol):
    """Interface for observers of a command that reads, plans or verifies. It may be called from several threads."""

    def phase(self, title: str, hosts: Iterable[str] = ()) -> None:
        """A phase begins. `title`: what is done, as one verb phrase. `hosts`: the hosts that it is about."""

    def step(self, host: str, activity: str, number: int = 0, total: int = 0) -> None:
        """A host of the phase is at an activity, for example a role; number `number` of `total` steps, 0 for unknown
        totals.
        """

    def finish(self, host: str, result: str = "done") -> None:
        """A host is finished with the phase. `result`: one word or two, such as `unreachable`."""


class NoProgress:
    """Observer that reports nothing."""

    def phase(self, title: str, hosts: Iterable[str] = ()) -> None:
        """Ignore a phase."""

    def step(self, host: str, activity: str, number: int = 0, total: int = 0) -> None:
        """Ignore a step."""

    def finish(self, host: str, result: str = "done") -> None:
        """Ignore an end."""


NO_PROGRESS = NoProgress()
