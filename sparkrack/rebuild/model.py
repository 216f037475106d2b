"""What a rebuild is about, its phases, and what is told of it at the end; the last is also its JSON."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import Field

from sparkrack.fleet import Rack
from sparkrack.fleet.errors import one_line
from sparkrack.fleet.record import Record, Text

Kind = Literal["nodes", "switch", "all"]
Outcome = Literal["done", "failed", "cut off", "not reached"]


class Phase(StrEnum):
    """In the order in which they come. Each may be repeated: it looks first and does what is missing."""

    WAIT = "wait"
    BOOTSTRAP = "bootstrap"
    APPLY = "apply"
    REBOOT = "reboot"
    VERIFY = "verify"


class RequestError(Exception):
    """A request that cannot be meant; the text says why."""


class Request(Record):
    """Which machines are rebuilt, in the order of the rack. Two calls are the same drill when these are equal.

    `file`: the rack file, absolute. `apart`: machines that are left out of everything, since they are not there now.
    """

    kind: Kind
    rack: str
    file: str
    nodes: tuple[str, ...]
    switches: tuple[str, ...]
    apart: tuple[str, ...] = ()

    @property
    def machines(self) -> tuple[str, ...]:
        """Nodes first."""
        return (*self.nodes, *self.switches)

    @property
    def title(self) -> str:
        """The request as a person says it."""
        return "the whole rack" if self.kind == "all" and not self.apart else ", ".join(self.machines)

    @property
    def words(self) -> tuple[str, ...]:
        """The same as words of the command line."""
        which = {"nodes": self.nodes, "switch": ("--switch", *self.switches), "all": ("--all",)}[self.kind]
        return (*which, *(word for name in self.apart for word in ("--exclude", name)))


def requested(
    rack: Rack, file: Path, nodes: Collection[str], switch: str | None, whole: bool, apart: Collection[str] = ()
) -> Request:
    """What the words of the command line mean; `switch` is "" for the only one. Raises RequestError."""
    if sum((bool(nodes), switch is not None, whole)) != 1:
        raise RequestError("say what is rebuilt: names of nodes, or --switch, or --all; one of the three")
    known = (*rack.nodes, *rack.switches)
    for name in apart:
        if name not in known:
            raise RequestError(f"--exclude {name}: not in the rack; there are {', '.join(known)}")
    for name in nodes:
        if name not in rack.nodes:
            raise RequestError(f"{name}: not a node of the rack; there are {', '.join(rack.nodes)}")
    kind: Kind = "all" if whole else "nodes" if nodes else "switch"
    mine = tuple(name for name in rack.nodes if name in nodes or whole)
    others = tuple(rack.switches) if whole else () if switch is None else (_switch(rack, switch),)
    if not whole and (both := [name for name in (*mine, *others) if name in apart]):
        raise RequestError(f"{both[0]} is rebuilt and excluded at once")
    path = str(file.absolute())
    try:
        path.encode()
    except UnicodeEncodeError:
        what = "the path is not UTF-8 text, so no journal can hold it; move the file, or rename the folder"
        raise RequestError(f"{one_line(path)}: {what}") from None
    left = tuple(name for name in mine if name not in apart), tuple(name for name in others if name not in apart)
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


def _switch(rack: Rack, name: str) -> str:
    known = ", ".join(rack.switches) or "none"
    if not name:
        if len(rack.switches) != 1:
            raise RequestError(f"say which switch; the rack has {known}")
        return next(iter(rack.switches))
    if name not in rack.switches:
        raise RequestError(f"{name} is no switch of the rack; it has {known}")
    return name


def phases(request: Request) -> tuple[Phase, ...]:
    """Those that this request has: a switch is not restarted."""
    return tuple(phase for phase in Phase if request.nodes or phase is not Phase.REBOOT)


class PhaseReport(Record):
    """One phase. `seconds`: all its tries together, but for one that was killed, which nobody measured. `tries`: how
    often it was begun, in this process and in those that this one resumed. `why`: of the last try that failed."""

    phase: Phase
    result: Outcome
    seconds: float = Field(ge=0)
    tries: int
    why: Text = ""


class Rebuilt(Record):
    """What came of a rebuild. `resumed`: at which phase it went on; null when it began anew. `seconds`: of this process
    alone. `restarted`: the nodes that were restarted. `again`: the command that goes on, null when all is done."""

    schema_: Literal["sparkrack.rebuild/1"] = Field("sparkrack.rebuild/1", alias="schema", serialization_alias="schema")
    rack: str
    file: str
    machines: tuple[str, ...]
    run: str
    journal: Text
    resumed: Phase | None
    result: Literal["done", "failed", "cut off"]
    seconds: float
    phases: tuple[PhaseReport, ...]
    restarted: tuple[str, ...]
    again: Text | None

    @property
    def code(self) -> int:
        """The exit code: 0 when everything is done and proven."""
        return 0 if self.result == "done" else 1
