"""What came of one check, and how a failed one is told in a line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """One check of one machine, or one of several faults it found. `why`: empty when it passed. `notes`: what it
    told besides. `left_out`: it does not apply to this rack, for the reason in `why`; it neither passed nor
    failed."""

    machine: str
    role: str
    check: str
    passed: bool
    why: str
    notes: tuple[str, ...] = ()
    left_out: bool = False


def first_line(longrepr: object) -> str:
    """The first line of what a failed test says, without the name of the exception that pytest puts before it."""
    crash = getattr(longrepr, "reprcrash", None)
    # A skipped test has its place and its reason.
    text = str(crash.message if crash else longrepr[-1] if isinstance(longrepr, tuple) else longrepr).strip()
    line = text.splitlines()[0] if text else "no reason given"
    for name in ("AssertionError", "Failed", "Skipped", "sparkrack.proof.shell.UnreachableError"):
        line = line.removeprefix(f"{name}: ")
    return line
