"""Request, phases and report of a rebuild; the report is also its JSON."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import Field

from core.model import Rack
from core.model.errors import printable_line
from core.model.selection import SelectionError, select_named, select_nodes
from core.util.records import Record, Text

Kind = Literal["nodes", "switch", "all"]
Outcome = Literal["done", "failed", "interrupted", "not reached"]


class Phase(StrEnum):
    """Phases in their order. Each may be repeated: it checks first and does what is missing."""

    WAIT = "wait"
    BOOTSTRAP = "bootstrap"
    APPLY = "apply"
    REBOOT = "reboot"
    START = "start"
    VERIFY = "verify"


class RequestError(Exception):
    """An invalid request; the text has the reason."""


class Request(Record):
    """The machines to rebuild, in the order of the rack.

    `file`: the rack file, absolute. `apart`: absent machines that are excluded from everything. `units`: those with
    `state: up` that have a rank on an affected node, which are started at the end.
    """

    kind: Kind
    rack: str
    file: str
    nodes: tuple[str, ...]
    switches: tuple[str, ...]
    apart: tuple[str, ...] = ()
    units: tuple[str, ...] = ()

    @property
    def machines(self) -> tuple[str, ...]:
        """Nodes first."""
        return (*self.nodes, *self.switches)

    @property
    def title(self) -> str:
        """Request as text."""
        return "the whole rack" if self.kind == "all" and not self.apart else ", ".join(self.machines)

    def resumes(self, other: Request) -> bool:
        """Return whether it is the same rebuild as another request. The units follow from rack.yaml, which may have
        been corrected in between.
        """
        return self.model_copy(update={"units": other.units}) == other

    @property
    def words(self) -> tuple[str, ...]:
        """The same as words of the command line."""
        which = {"nodes": self.nodes, "switch": ("--switch", *self.switches), "all": ("--all",)}[self.kind]
        return (*which, *(word for name in self.apart for word in ("--exclude", name)))


def requested(
    rack: Rack, file: Path, nodes: Collection[str], switch: str | None, whole: bool, apart: Collection[str] = ()
) -> Request:
    """Interpret the words of the command line; `switch` is "" for the only one. Raises RequestError."""
    if sum((bool(nodes), switch is not None, whole)) != 1:
        raise RequestError("choose what is rebuilt: names of nodes, or --switch, or --all; one of the three")
    known = (*rack.nodes, *rack.switches)
    try:
        apart = select_named(rack, apart, "--exclude")
        nodes = select_nodes(rack, nodes, "") if nodes else ()
    except SelectionError as fault:
        raise RequestError(str(fault)) from None
    kind: Kind = "all" if whole else "nodes" if nodes else "switch"
    own = tuple(name for name in rack.nodes if name in nodes or whole)
    others = tuple(rack.switches) if whole else () if switch is None else (_chosen_switch(rack, switch),)
    if not whole and (both := [name for name in (*own, *others) if name in apart]):
        raise RequestError(f"{both[0]} is rebuilt and excluded at once")
    path = str(file.absolute())
    try:
        path.encode()
    except UnicodeEncodeError:
        what = "the path is not UTF-8 text, so no journal can hold it; move the file, or rename the folder"
        raise RequestError(f"{printable_line(path)}: {what}") from None
    left = tuple(name for name in own if name not in apart), tuple(name for name in others if name not in apart)
    if not any(left):
        raise RequestError("--exclude leaves no machine")
    return Request(
        kind=kind,
        rack=rack.rack,
        file=path,
        nodes=left[0],
        switches=left[1],
        apart=tuple(name for name in known if name in apart),
    )


def _chosen_switch(rack: Rack, name: str) -> str:
    known = ", ".join(rack.switches) or "none"
    if not name:
        if len(rack.switches) != 1:
            raise RequestError(f"name the switch; the rack has {known}")
        return next(iter(rack.switches))
    if name not in rack.switches:
        raise RequestError(f"{name} is not a switch of the rack; it has {known}")
    return name


def phases(request: Request) -> tuple[Phase, ...]:
    """Return the phases of this request: a switch is not restarted, and not every rack has units to start."""
    without = {phase for phase, why in ((Phase.REBOOT, request.nodes), (Phase.START, request.units)) if not why}
    return tuple(phase for phase in Phase if phase not in without)


class PhaseReport(Record):
    """One phase. `seconds`: all its completed tries together. `tries`: how often it was begun, in this process and in
    those that this one resumed. `reason`: of the last failed try.
    """

    phase: Phase
    result: Outcome
    seconds: float = Field(ge=0)
    tries: int
    reason: Text = ""


class RebuildReport(Record):
    """Result of a rebuild. `resumed`: the phase at which it was resumed; null when it started from the beginning.
    `seconds`: of this process only. `restarted`: the nodes that were restarted. `again`: the command that resumes it,
    null when all is done.
    """

    schema_: Literal["sparkrack.rebuild/2"] = Field("sparkrack.rebuild/2", alias="schema", serialization_alias="schema")
    rack: str
    file: str
    machines: tuple[str, ...]
    run: str
    journal: Text
    resumed: Phase | None
    result: Literal["done", "failed", "interrupted"]
    seconds: float
    phases: tuple[PhaseReport, ...]
    restarted: tuple[str, ...]
    again: Text | None

    @property
    def code(self) -> int:
        """The exit code: 0 when everything is done and proven."""
        return 0 if self.result == "done" else 1
