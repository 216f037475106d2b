"""The command that follows from a report of `sparkrack accept`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sparkrack.accept.model import AcceptReport


class NextCommand(NamedTuple):
    """A command and its purpose. `same_hosts`: it gets --limit and --exclude of this run, and is for its hosts but
    those of `without`.
    """

    words: tuple[str, ...]
    reason: str = ""
    same_hosts: bool = False
    without: tuple[str, ...] = ()


def next_command(report: AcceptReport, ids: Sequence[str], output: Path | None) -> NextCommand:
    """Return what finds out why no host answers, leaves out those that do not, writes the evidence, or proves the rack.

    Args:
        report: what the run observed.
        ids: the claims to which the run was limited; empty: all.
        output: the folder to which the run wrote its evidence.
    """
    again = ("sparkrack", "accept", *(word for name in ids for word in ("--claim", name)))
    silent = tuple(host.host for host in report.hosts if not host.answered)
    if report.exit == 1:
        return NextCommand(("sparkrack", "status"), "to see which hosts answer")
    if silent:
        words = (*again, *(("--output", str(output)) if output else ()))
        return NextCommand(words, "without the hosts that do not answer", same_hosts=True, without=silent)
    if output is None:
        return NextCommand((*again, "--output", "accept"), "for a page with the evidence", same_hosts=True)
    if report.exit == 2:
        return NextCommand(("sparkrack", "support"), "for a report of what is refuted")
    return NextCommand(("sparkrack", "verify"))
