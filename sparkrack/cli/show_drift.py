"""Drift on the screen: by kind, then by machine."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

from sparkrack.cli.show import printable
from sparkrack.drift.words import TITLES, difference, sentence, total
from sparkrack.run.drift import Compared, Drift, Finding, Kind, Since

_STYLES: Mapping[Kind, str] = {
    Kind.DECLARED: "yellow",
    Kind.RUNTIME: "red",
    Kind.FLEET: "yellow",
    Kind.UNMANAGED: "cyan",
    Kind.UNKNOWN: "red",
}


def show_drift(drift: Drift, *, quiet: bool = False) -> None:
    """Print drift for a person; the last line is the verdict. `quiet`: one line for each thing that is wrong, and what
    came and went if that was asked for."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for kind, title in TITLES.items():
        machines = [machine for machine in drift.machines if _has(machine, kind)]
        if quiet and kind is Kind.UNMANAGED:
            continue
        if machines and not quiet:
            console.print(title, style="bold")
        for machine in machines:
            _machine(console, machine, kind, quiet)
    if drift.since:
        _since(console, drift.since)
    console.print(total(drift), style="bold")


def _has(machine: Compared, kind: Kind) -> bool:
    return any(True for _ in machine.found(kind)) or (kind is Kind.UNKNOWN and bool(machine.why))


def _machine(console: Console, machine: Compared, kind: Kind, quiet: bool) -> None:
    if kind is Kind.UNKNOWN and machine.why:
        console.print(f"{'' if quiet else '  '}{machine.name}: unreachable: {printable(machine.why)}", style="red")
    elif not quiet:
        console.print(f"  {machine.name}")
    for role, finding in machine.found(kind):
        if quiet:
            console.print(f"{machine.name} {role}: {sentence(finding)}", style=_STYLES[kind])
        else:
            _finding(console, role, finding)


def _finding(console: Console, role: str, finding: Finding) -> None:
    console.print(f"    {role}: {sentence(finding)}", style=_STYLES[finding.kind])
    for text in finding.diff:
        style = "green" if text.startswith("+") else "red" if text.startswith("-") else "dim"
        console.print(Text(f"      {printable(text)}", style=style))


def _since(console: Console, since: Since) -> None:
    console.print(f"Since {since.run}", style="bold")
    for one in since.came:
        console.print(f"  came: {difference(one)}", style="yellow")
    for one in since.went:
        console.print(f"  went: {difference(one)}", style="green")
    if not (since.came or since.went):
        console.print("  nothing came and nothing went")
    if since.uncompared:
        console.print(f"  cannot be compared: {', '.join(since.uncompared)}")
