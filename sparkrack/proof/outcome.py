"""What came of one check, and how a failed one is told in a line."""

from __future__ import annotations

from dataclasses import dataclass

from sparkrack.proof.found import Bandwidth, Reach


@dataclass(frozen=True)
class Outcome:
    """One check of one machine, or one of several faults it found.

    `why`: empty when it passed. `notes` and `measured`: what it told besides. `left_out`: it does not apply to this
    rack, for the reason in `why`; it neither passed nor failed. `unknown`: it did not pass, and nothing is proven to
    be otherwise either, since what it asks could not be learnt.
    """

    machine: str
    role: str
    check: str
    passed: bool
    why: str
    notes: tuple[str, ...] = ()
    left_out: bool = False
    unknown: bool = False
    measured: tuple[Reach | Bandwidth, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether something is proven to be otherwise than declared."""
        return not (self.passed or self.left_out or self.unknown)


def left_alone(machine: str, role: str) -> Outcome:
    """What stands for all checks of a role that the rack file leaves alone."""
    return Outcome(machine, role, "-", passed=False, why="the rack file leaves this role alone", left_out=True)


def first_line(longrepr: object) -> str:
    """The first line of what a failed test says, without the name of the exception that pytest puts before it."""
    crash = getattr(longrepr, "reprcrash", None)
    # A skipped test has its place and its reason.
    text = str(crash.message if crash else longrepr[-1] if isinstance(longrepr, tuple) else longrepr).strip()
    line = text.splitlines()[0] if text else "no reason given"
    for name in (
        *("AssertionError", "Failed", "Skipped"),
        *("sparkrack.proof.shell.UnreachableError", "sparkrack.proof.told.UnknownError"),
    ):
        line = line.removeprefix(f"{name}: ")
    return line
