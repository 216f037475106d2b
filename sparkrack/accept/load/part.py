"""What the parts of the level `load` get and give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from core.model import Rack
from core.model.errors import counted
from core.util.progress import ProgressObserver
from sparkrack.accept.model import MachineResult
from sparkrack.rebuild.workloads import CONTAINERS, NodeReachability, query_workloads, unit_blockers

Results = Mapping[str, Iterable[MachineResult]]
"""What hosts show, by the id of the claim."""


class LoadError(Exception):
    """A part cannot begin, or the rack is not as it was; the text is one line."""


class Hand(Protocol):
    """The operator at the rack."""

    def ask(self, text: str) -> None:
        """Ask for a movement of the hand, which ENTER confirms."""

    def done(self) -> bool:
        """Whether it was confirmed since it was asked for; waits for nothing."""


class HeldLock(Protocol):
    """The lock of the rack, as `RackLock`."""

    head: str

    def check(self) -> None: ...

    def restarts(self) -> None: ...

    def take(self) -> None: ...


class Marks(Protocol):
    """What earlier runs of the same command began, by part: a run that was killed leaves them."""

    @property
    def begun(self) -> Mapping[str, str]: ...

    def begin(self, part: str, data: str) -> None: ...


@dataclass(frozen=True)
class LoadRun:
    """One run. `nodes`: those that are selected; `excluded`: hosts that are not contacted. `say`: prints a line."""

    rack: Rack
    nodes: Sequence[str]
    excluded: frozenset[str]
    progress: ProgressObserver
    say: Callable[[str], None]
    held: HeldLock
    hand: Hand
    marks: Marks


def working(rack: Rack, nodes: Sequence[str], *, containers: bool) -> dict[str, str]:
    """Return the nodes that work or may work, each with the reason. `containers`: a container of no unit counts."""
    found = {}
    for name, workload in query_workloads(rack, nodes, CONTAINERS).items():
        if workload.reachability is not NodeReachability.OURS:
            found[name] = f"whether a unit runs is unknown: {workload.reason}"
        elif workload.units:
            found[name] = "; ".join(
                unit_blockers(rack, {unit: [name] for unit in workload.units}, stops=False, offered=False)
            )
        elif containers and workload.containers:
            found[name] = f"{counted(workload.containers, 'container')} on {name}; stop them first"
    return found
