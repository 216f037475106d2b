"""Drift on the screen: by kind, then by machine."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

from core.model.errors import printable
from core.util.tables import print_sentence
from sparkrack.drift.findings import Comparison, Drift, DriftFinding, FindingKind, Since
from sparkrack.drift.labels import TITLES, difference, sentence, total

_STYLES: Mapping[FindingKind, str] = {
    FindingKind.DECLARED: "yellow",
    FindingKind.BROKEN: "red",
    FindingKind.OUTLIER: "yellow",
    FindingKind.UNMANAGED: "cyan",
    FindingKind.UNKNOWN: "red",
}


def show_drift(drift: Drift, *, quiet: bool = False) -> None:
    """Print drift as text; the last line is the verdict. `quiet`: one line for each problem, and what appeared and was
    resolved if requested.
    """
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for kind, title in TITLES.items():
        machines = [machine for machine in drift.hosts if _has_finding(machine, kind)]
        if quiet and kind is FindingKind.UNMANAGED:
            continue
        if machines and not quiet:
            console.print(title, style="bold")
        for machine in machines:
            _machine(console, machine, kind, quiet)
    if drift.since:
        _show_since(console, drift.since)
    print_sentence(console, total(drift), "bold")


def _has_finding(machine: Comparison, kind: FindingKind) -> bool:
    return any(True for _ in machine.found(kind)) or (kind is FindingKind.UNKNOWN and bool(machine.reason))


def _machine(console: Console, machine: Comparison, kind: FindingKind, quiet: bool) -> None:
    if kind is FindingKind.UNKNOWN and machine.reason:
        start = "" if quiet else "  "
        print_sentence(console, f"{start}{machine.name}: unreachable: {printable(machine.reason)}", "red")
    elif not quiet:
        console.print(f"  {machine.name}")
    for role, finding in machine.found(kind):
        if quiet:
            print_sentence(console, f"{machine.name} {role}: {sentence(finding)}", _STYLES[kind])
        else:
            _finding(console, role, finding)


def _finding(console: Console, role: str, finding: DriftFinding) -> None:
    print_sentence(console, f"    {role}: {sentence(finding)}", _STYLES[finding.kind])
    for text in finding.diff:
        style = "green" if text.startswith("+") else "red" if text.startswith("-") else "dim"
        console.print(Text(f"      {printable(text)}", style=style))


def _show_since(console: Console, since: Since) -> None:
    console.print(f"Since {since.run}", style="bold")
    for one in since.appeared:
        print_sentence(console, f"  appeared: {difference(one)}", "yellow")
    for one in since.resolved:
        print_sentence(console, f"  resolved: {difference(one)}", "green")
    if not (since.appeared or since.resolved):
        console.print("  nothing appeared and nothing was resolved")
    if since.uncompared:
        print_sentence(console, f"  cannot be compared: {', '.join(since.uncompared)}")
