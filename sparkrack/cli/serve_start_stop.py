"""`sparkrack serve start|stop|restart|recreate|use`: bring a unit up on its nodes, or down, and wait until it is so."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from core.model.errors import printable_line
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import rack_option, unit_argument
from sparkrack.serving.recreation import UnitRecreation
from sparkrack.serving.unit_run import UnitRun, UnitSession
from sparkrack.serving.unit_use import UnitUse
from sparkrack.terminal.progress import show_progress

anyway_option = click.option(
    "--anyway",
    is_flag=True,
    help="Start although a machine ended without a clean shutdown and was not rebooted since, or its driver failed "
    "or keeps memory since its boot.",
)
timeout_option = click.option(
    "--timeout",
    type=click.IntRange(1),
    metavar="SECONDS",
    help="Seconds to wait for the start.  [default: those that gates, start and stop of the unit may take]",
)


@click.command()
@unit_argument
@anyway_option
@timeout_option
@rack_option
def start(unit: str, anyway: bool, timeout: int | None, rack: Path) -> None:
    """Start a unit on all its nodes, and wait until a completion has proven it.

    \b
      sparkrack serve start qwen
      sparkrack serve start qwen --anyway

    The coordinator on the head of the unit lets each node run its gate, then all ranks start, or none. Each phase is
    printed with its seconds. The lock of the rack is held during the wait. Ctrl-C, or the end of --timeout, ends the
    wait only: the coordinator continues.

    Exit 0 when a completion has proven the unit, also when it ran already. Exit 1 when it was refused or failed: then
    no rank runs, and the reason of each node is printed.
    """
    exit_with_next(*run_unit(rack, unit, "start", lambda work: [work.start(anyway, timeout)]))


@click.command()
@unit_argument
@rack_option
def stop(unit: str, rack: Path) -> None:
    """Stop a unit, and wait until every rank has reported that it does not run.

    \b
      sparkrack serve stop qwen

    Exit 0 when the unit is down, also when it was before. Exit 1 when a rank is not confirmed as stopped: the
    coordinator goes on stopping it. It stays down until `serve start`; `state` in rack.yaml is not changed.
    """
    exit_with_next(*run_unit(rack, unit, "stop", lambda work: [work.stop]))


@click.command()
@unit_argument
@anyway_option
@timeout_option
@rack_option
def restart(unit: str, anyway: bool, timeout: int | None, rack: Path) -> None:
    """Stop a unit, then start it: `serve stop` and `serve start`.

    \b
      sparkrack serve restart qwen

    It is not started when a rank is not confirmed as stopped. The restart budget of the unit is not used.

    Exit 0 when a completion has proven the unit, else 1.
    """
    exit_with_next(*run_unit(rack, unit, "restart", lambda work: [work.stop, work.start(anyway, timeout)]))


def run_unit(
    rack: Path, unit: str, verb: str, steps: Callable[[UnitRun], Sequence[Callable[[UnitSession], bool]]]
) -> tuple[UnitRun, bool]:
    """Run steps under the lock of the rack; return the run, and whether all were done."""
    with show_progress(silent=False) as screen:
        work = UnitRun(rack, unit, screen)
        return work, work.attempt(lambda: work.locked(verb, *steps(work)))


def exit_with_next(work: UnitRun, done: bool) -> None:
    """Print the next step and end with the exit code."""
    next_step(["sparkrack", "serve", *work.then], work.reason, rack=work.file)
    sys.exit(0 if done else 1)


@click.command()
@unit_argument
@anyway_option
@timeout_option
@rack_option
def recreate(unit: str, anyway: bool, timeout: int | None, rack: Path) -> None:
    """Stop a unit, write its files as rack.yaml declares them, then start it.

    \b
      sparkrack serve recreate qwen

    Between stop and start it runs `sparkrack apply -y --only serving` for the nodes of the unit, under its own lock.
    When the unit does not serve with the new files, those of its last good start are put back, it is started with them,
    and the reason is printed; rack.yaml is not changed.

    Exit 0 when a completion has proven the unit as declared, else 1: also when the previous version serves again.
    """
    exit_with_next(*run_unit(rack, unit, "recreate", lambda work: [UnitRecreation(work, rack, anyway, timeout).run]))


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
