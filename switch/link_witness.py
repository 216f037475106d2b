"""The other end of a leg: the link as the node's own port reports it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.probes import protocol
from core.probes.links import parse_ethtool
from core.routeros.change_plan import AffectedLink

if TYPE_CHECKING:
    from core.model.cabling import Half, Port

Ask = Callable[[str, str], str | None]
"""Runs a command on a node and returns its output; None when the node cannot be asked."""

_UP = 0x1


@dataclass(frozen=True)
class HalfReport:
    """What a node reports of one half of its port, and why that is not what the switch reports."""

    half: str
    reason: str

    def __str__(self) -> str:
        return f"{self.half}: {self.reason}"


@dataclass(frozen=True)
class WitnessReport:
    """What the nodes report: halves that see another link than the switch does, and halves that are unknown."""

    disagree: tuple[HalfReport, ...]
    unknown: tuple[HalfReport, ...]


Witness = Callable[[Sequence[AffectedLink]], WitnessReport]


def witness(ask: Ask) -> Witness:
    """A witness that asks each node once, for both halves of its port."""

    def look(links: Sequence[AffectedLink]) -> WitnessReport:
        disagree: list[HalfReport] = []
        unknown: list[HalfReport] = []
        for link in links:
            answers = _ask_port(ask, link.port)
            for half in link.port.halves:
                found = _judge_half(half, link.leg.gbps, answers)
                if found is None:
                    continue
                (disagree if found[0] else unknown).append(HalfReport(str(half), found[1]))
        return WitnessReport(tuple(disagree), tuple(unknown))

    return look


def _ask_port(ask: Ask, port: Port) -> protocol.Answers | str:
    """Return the answers of a node about its port; or why there are none."""
    names = [half.interface for half in port.halves]
    commands, files = {name: f"ethtool {name}" for name in names}, [_flags_file(name) for name in names]
    output = ask(port.node, protocol.script(commands, files))
    if output is None:
        return f"{port.node} is not in this run"
    try:
        return protocol.parse(output, commands, files)
    except protocol.InvalidAnswerError as fault:
        return f"{port.node} cannot be understood: {fault}"


def _flags_file(interface: str) -> str:
    return f"/sys/class/net/{interface}/flags"


def _judge_half(half: Half, gbps: int, answers: protocol.Answers | str) -> tuple[bool, str] | None:
    """Compare one half with the switch: None when it agrees; else True for a disagreement, False for an unknown
    state, and its report.
    """
    if isinstance(answers, str):
        return False, answers
    try:
        up = int(answers.files.get(_flags_file(half.interface)) or b"", 16) & _UP
    except ValueError:
        return False, "there is no such interface yet"
    if not up:
        return False, "the interface is switched off on the node"
    answer = answers.commands.get(half.interface)
    # Whatever the exit status: ethtool fails for a setting that a driver does not report, and prints the others.
    report = parse_ethtool(answer.text if answer else "")
    if report.link is None or report.speed is None:
        return False, "ethtool does not report"
    if report.link != "yes":
        return True, f"sees no link, should see {gbps}G"
    wanted = f"{gbps * 1000}Mb/s"
    return None if report.speed == wanted else (True, f"runs at {report.speed}, should run at {wanted}")
