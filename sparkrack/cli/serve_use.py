"""`sparkrack serve use`: another unit of a slot, after a plan and one question."""

from __future__ import annotations

from pathlib import Path

import click

from core.model.errors import printable_line
from sparkrack.cli.options import rack_option
from sparkrack.cli.serve_start_stop import anyway_option, exit_with_next, timeout_option, unit_argument
from sparkrack.serving.unit_use import UnitUse
from sparkrack.terminal.progress import show_progress


@click.command()
@unit_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@anyway_option
@timeout_option
@rack_option
def use(unit: str, yes: bool, anyway: bool, timeout: int | None, rack: Path) -> None:
    """Have another unit of its slot up: stop the one that is up, start UNIT, prove it.

    \b
      sparkrack serve use qwen

    It shows first what is stopped and how long the slot is away, by the latest start of UNIT, and asks. When UNIT does
    not come, the former unit is started again. When it is proven, `state` of both is changed in rack.yaml, and no other
    byte of it. A run that was interrupted is continued by the same command.

    Exit 0 when a completion has proven UNIT, also when it was up already. Else 1: also when the former unit serves
    again.
    """
    with show_progress(silent=False) as screen:
        change = UnitUse(rack, unit, screen, anyway, timeout)
        change.check_file()
        found = change.inquire()
        lines = [printable_line(line) for line in change.plan(found)]
        for line in lines:
            screen.say(line)
        if not lines:
            screen.say(f"unit {unit} is up already, and rack.yaml says so")
        elif not yes:
            screen.require_consent("Do this?")
        done = not lines or change.work.attempt(lambda: change.run(found))
    exit_with_next(change.work, done)
