"""The outcome of one check."""

from __future__ import annotations

from dataclasses import dataclass

from core.verify.measurements import Measured


@dataclass(frozen=True)
class Outcome:
    """One check of one host, or one of several problems it found.

    `why`: empty when it passed. `notes` and `measured`: its further reports. `skipped`: it does not apply to this
    rack, for the reason in `why`; it neither passed nor failed. `unknown`: it did not pass, and nothing is proven to
    be otherwise either, since what it asks could not be learnt.
    """

    machine: str
    role: str
    check: str
    passed: bool
    why: str
    notes: tuple[str, ...] = ()
    skipped: bool = False
    unknown: bool = False
    measured: tuple[Measured, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether something differs from what is declared."""
        return not (self.passed or self.skipped or self.unknown)


def left_alone(machine: str, role: str) -> Outcome:
    """Return the outcome that stands for all checks of a role that is unmanaged in the rack file."""
    return Outcome(machine, role, "-", passed=False, why="the rack file leaves this role alone", skipped=True)


def first_line(text: str) -> str:
    """The first line of a text that may have none."""
    return next(iter(text.strip().splitlines()), "no reason given")
