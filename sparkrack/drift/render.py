"""Drift on the screen: by kind, then by machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console

from core.model.errors import printable
from core.util.tables import print_sentence
from sparkrack.drift.findings import Comparison, Drift, DriftFinding, FindingKind, Since
from sparkrack.drift.labels import TITLES, difference, sentence, total
from sparkrack.engine.alike_hosts import Entry, content_entries, group_hosts, key_of, merge_hosts, show_row

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
        if quiet:
            for machine in machines:
                _show_problems(console, machine, kind)
        elif machines:
            console.print(title, style="bold")
            _show_findings(console, machines, kind, [machine.name for machine in drift.hosts])
    if drift.since:
        _show_since(console, drift.since)
    print_sentence(console, total(drift), "bold")


def _has_finding(machine: Comparison, kind: FindingKind) -> bool:
    return any(True for _ in machine.found(kind)) or (kind is FindingKind.UNKNOWN and bool(machine.reason))


def _show_problems(console: Console, machine: Comparison, kind: FindingKind) -> None:
    if kind is FindingKind.UNKNOWN and machine.reason:
        print_sentence(console, f"{machine.name}: unreachable: {printable(machine.reason)}", "red")
    for role, finding in machine.found(kind):
        print_sentence(console, f"{machine.name} {role}: {sentence(finding)}", _STYLES[kind])


def _show_findings(console: Console, machines: Sequence[Comparison], kind: FindingKind, names: Sequence[str]) -> None:
    """Print the findings of one kind, those of machines that are alike together. `names`: of all machines."""
    for machine in machines:
        if kind is FindingKind.UNKNOWN and machine.reason:
            print_sentence(console, f"  {machine.name}: unreachable: {printable(machine.reason)}", "red")
    entries = {
        machine.name: found
        for machine in machines
        if (found := tuple(_make_entry(role, finding, names) for role, finding in machine.found(kind)))
    }
    for group in group_hosts(entries):
        print_sentence(console, f"  {', '.join(group)}")
        for row in merge_hosts({name: entries[name] for name in group}):
            show_row(console, row, group, 2, full=True)


def _make_entry(role: str, finding: DriftFinding, names: Sequence[str]) -> Entry:
    text = f"{role}: {sentence(finding)}"
    return Entry(text, key_of(text, names), "event", _STYLES[finding.kind], content_entries(finding.diff, names))


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
