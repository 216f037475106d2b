"""`sparkrack adopt`: the rack file of a rack that was configured by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from typing import Any

import click

from sparkrack.cli.discovery_command import discovery_options, given_options, print_list
from sparkrack.cli.next_step import next_step
from sparkrack.discovery.first_rack_file import write_adopted
from sparkrack.engine.subcommands import CALL, WITHIN
from sparkrack.terminal.progress import ProgressDisplay, show_progress


@click.command()
@discovery_options
@click.option("--drift", is_flag=True, help="Then run sparkrack drift with the file that was written.")
def adopt(drift: bool, **given: Any) -> None:
    """Write the rack.yaml that describes a rack which was configured by hand, with the values that it has now.

    \b
      sparkrack adopt --node spark1=10.77.0.11 --node spark2=10.77.0.12 \\
        --switch 10.77.0.2 --switch-password-env CRS812_PASSWORD --drift

    Every machine must answer: nodes by key login and sudo without a password, the switch over its API. Nothing is
    changed on them. Settings that no key of the file can express are listed, and so is every live value that
    a run would change.
    Exit 0: the file is complete. 2: it is written with gaps, which are listed. 1: nothing was written.
    """
    options = given_options(**given)
    made = write_adopted(options, ProgressDisplay(silent=True), partial(show_progress, silent=False))
    print_list("not found", made.sheet.missing)
    print_list("not in the file", made.sheet.unrepresentable)
    print_list("a run would change", made.changes)
    print_list("not ready", made.faults)
    code = 2 if made.gaps or made.sheet.unrepresentable or made.changes else 0
    click.echo(f"{options.out} " + {0: "is complete", 2: "has gaps, listed above"}[code])
    if drift and made.rack:
        code = _worse_exit(code, _run_drift(str(options.out)))
    next_step(["sparkrack", "check" if made.faults else "plan" if drift else "drift"], rack=options.out)
    sys.exit(code)


def _run_drift(out: str) -> int:
    command = [*CALL, "drift", "--rack", out]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, env={**os.environ, WITHIN: "adopt"}, check=False
    ).returncode


def _worse_exit(one: int, other: int) -> int:
    """Exit 1 goes before 2, and 2 before 0."""
    return next(code for code in (1, 2, 0) if code in (one, other if other in (0, 2) else 1))
