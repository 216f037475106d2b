"""Test knobs: make a command go wrong the way a real switch or network can."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Kind = Literal["trap", "drop", "delay", "garbage", "fatal", "mute", "hang", "ignore", "admin"]
On = Literal["any", "write"]


@dataclass
class InjectedFault:
    """One injected fault.

    ``kind``: ``trap`` refuses with ``message``; ``drop`` closes the connection; ``delay`` waits ``seconds`` first;
    ``garbage`` answers bytes that are not a sentence; ``fatal`` answers ``!fatal`` with ``message`` and closes;
    ``mute`` executes but never answers; ``hang`` neither executes nor answers, and a connection that waits for it gets
    nothing more; ``ignore`` answers done but does nothing; ``admin`` lets another administrator give ``sentences``
    first, in a session that stays. ``match`` is a prefix of the command; with ``on: "write"``
    only commands that write are matched. The first ``after`` matching commands pass; then ``times`` are hit (0: all).
    ``executed``: for ``trap``, ``drop``, ``garbage``, ``fatal`` and ``hang``, whether the command still takes effect.
    """

    kind: Kind
    match: str = "/"
    on: On = "any"
    after: int = 0
    times: int = 1
    message: str = "failure: injected"
    seconds: float = 0.0
    executed: bool = False
    sentences: list[list[str]] = field(default_factory=list)

    @property
    def takes_effect(self) -> bool:
        """Whether the command is executed in spite of the fault."""
        return self.executed or self.kind == "mute"

    def hits(self, command: str, *, write: bool) -> bool:
        """Return whether the fault hits this command, and count it."""
        if not command.startswith(self.match) or self.times < 0 or (self.on == "write" and not write):
            return False
        if self.after > 0:
            self.after -= 1
            return False
        if self.times > 0:
            self.times -= 1
            self.times = self.times or -1
        return True


class InjectedFaults:
    """The active faults. Each command meets the first one that matches it."""

    def __init__(self) -> None:
        self.active: list[InjectedFault] = []

    def add(self, wanted: dict[str, Any]) -> None:
        """Add a fault from a control request; ValueError or TypeError for an invalid one."""
        fault = InjectedFault(**wanted)
        if fault.kind not in get_args(Kind):
            raise ValueError(f"no fault kind {fault.kind}; there are {', '.join(get_args(Kind))}")
        if fault.on not in get_args(On):
            raise ValueError(f"a fault is not on {fault.on}, but on {' or '.join(get_args(On))}")
        self.active.append(fault)

    def clear(self) -> None:
        """End all faults."""
        self.active.clear()

    def strike(self, command: str, *, write: bool) -> InjectedFault | None:
        """Return the fault that hits a command, if any."""
        self.active = [fault for fault in self.active if fault.times >= 0]
        return next((fault for fault in self.active if fault.hits(command, write=write)), None)
