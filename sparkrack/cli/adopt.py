"""`sparkrack adopt`: the rack file of a rack that was configured by hand."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import click

from sparkrack.cli.discovering import Discovery
from sparkrack.cli.wishes import judged as wished
from sparkrack.cli.wishes import wish_options
from sparkrack.cli.writing import judged, told, written
from sparkrack.discovery.describe import describe
from sparkrack.discovery.page import text
from sparkrack.discovery.residue import changes


@click.command()
@wish_options
@click.option("--drift", is_flag=True, help="Then run sparkrack drift with the file that was written.")
def adopt(drift: bool, **options: Any) -> None:
    """Write the rack.yaml that describes a rack which was configured by hand, with the values that it has now.

    \b
      sparkrack adopt --node spark1=10.77.0.11 --node spark2=10.77.0.12 \\
        --switch 10.77.0.2 --switch-password-env CRS812_PASSWORD --drift

    Every machine must answer: nodes by key login and sudo without a password, the switch over its API. Nothing is
    changed on them. What no key of the file can say is listed, and so is every live value that a run would change.
    Exit 0: the file says all there is. 2: it is written, with something listed. 1: nothing was written.
    """
    wishes = wished(**options)
    discovery = Discovery(wishes, strict=True)
    sheet = describe(discovery.run(), live=True)
    sheet.heads[()] = ["Written by sparkrack adopt: this rack as it was found."]
    rack, faults = judged(text(sheet), wishes.out)
    found = changes(rack, discovery.facts, discovery.switches) if rack else ()
    written(sheet, wishes.out, discovery.pins, discovery.file, wishes.ssh_port, yes=wishes.yes)
    told("not found", sheet.missing)
    told("not in the file", sheet.beyond)
    told("a run would change", found)
    told("not ready", faults)
    code = 2 if sheet.missing or sheet.beyond or found or faults else 0
    click.echo(f"{wishes.out} " + {0: "says all there is", 2: "does not say all there is"}[code])
    if drift and rack:
        code = _worse(code, _drift(str(wishes.out)))
    sys.exit(code)


def _drift(out: str) -> int:
    command = [sys.executable, "-m", "sparkrack.cli.main", "drift", "--rack", out]
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode


def _worse(one: int, other: int) -> int:
    """Exit 1 goes before 2, and 2 before 0."""
    return next(code for code in (1, 2, 0) if code in (one, other if other in (0, 2) else 1))
