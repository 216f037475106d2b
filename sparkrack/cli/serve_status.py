"""`sparkrack serve status`: the state of the units, as their coordinators report it. Nothing is changed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from core.model import load
from core.model.errors import printable_line
from core.util.command_error import CommandError
from core.util.tables import print_sentence, print_whole
from serving.options import select_unit, served_units
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import json_option, quiet_option, rack_option, units
from sparkrack.serving.coordinator import SERVING, ask_coordinators
from sparkrack.serving.unit_status import ServeStatus, StartPhase, UnitStatus, build_serve_status, next_command
from sparkrack.status.render import span
from sparkrack.terminal.progress import show_progress

_FIGURES = {
    "gates_s": "gates",
    "ready_s": "start to ready",
    "completion_s": "latest completion",
    "embedding_s": "latest embeddings",
    "ranking_s": "latest ranking",
}


@click.command()
@click.argument("unit", required=False, metavar="[UNIT]", shell_complete=units)
@rack_option
@json_option
@quiet_option
def status(unit: str | None, rack: Path, as_json: bool, quiet: bool) -> None:
    """Show the state of each unit of rack.yaml, or of UNIT, as its coordinator reports it.

    \b
      sparkrack serve status
      sparkrack serve status qwen --json | jq -r '.units[0].state'

    A unit with `state: up` is as desired while it is ready or busy; one with `state: down` when every rank is stopped.
    A unit whose head or coordinator does not answer is unknown, never down. Restarts are those that count towards the
    budget. Files of a unit that rack.yaml does not declare, such as its previous version, are named; the exit code is
    about `state`. Exit 0 when all are as desired, 2 when one is not, 1 when one is unknown.
    """
    found = load(rack)
    if unit is None and not served_units(found):
        raise CommandError(f"{found.source} has no serving section")
    chosen = [select_unit(found, unit)] if unit else list(served_units(found).values())
    with show_progress(silent=as_json or quiet) as progress:
        answers = ask_coordinators(found, chosen, progress)
    now = build_serve_status(found, chosen, answers)
    if as_json:
        click.echo(now.model_dump_json(by_alias=True, indent=1))
    else:
        _show(now, whole=unit is not None, quiet=quiet)
    next_step(["sparkrack", *next_command(now)], rack=rack, silent=as_json or quiet)
    sys.exit(now.code)


def _show(now: ServeStatus, *, whole: bool, quiet: bool) -> None:
    """Print the table, what is to be known of each unit, and a last line. `whole`: each rank, whatever its state."""
    console = Console(highlight=False, markup=False)
    if not quiet:
        table = Table(box=None, pad_edge=False)
        for title in ("unit", "desired", "state", "for", "generation", "ranks", "restarts"):
            table.add_column(title, no_wrap=True)
        for one in now.units:
            table.add_row(
                one.unit,
                one.desired_state,
                one.state if one.as_desired else f"{one.state}!",
                "-" if one.seconds is None else span(int(one.seconds)),
                "-" if one.generation is None else str(one.generation),
                _ranks(one),
                f"{'?' if one.restarts.used is None else one.restarts.used}/{one.restarts.allowed}",
            )
        print_whole(console, table)
    for one in now.units:
        if not quiet or not one.as_desired or one.files in ("previous", "other") or one.files_unknown:
            for line in _lines(one, whole=whole):
                print_sentence(console, printable_line(line))
    for slot in now.slots:
        if slot.reason:
            print_sentence(console, printable_line(f"slot {slot.slot}: {slot.reason}"))
    wrong, unknown = (sum(one.as_desired is value for one in now.units) for value in (False, None))
    count = len(now.units)
    counts = f"{count - wrong - unknown} as desired, {wrong} not as desired, {unknown} unknown"
    print_sentence(console, f"{count} unit{'' if count == 1 else 's'}: {counts}")


def _ranks(one: UnitStatus) -> str:
    """Return how many ranks have each state: "2 running", "1 running, 1 unknown"."""
    states = [rank.state for rank in one.ranks]
    return printable_line(", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))) or "-"


def _lines(one: UnitStatus, *, whole: bool) -> Iterator[str]:
    reason = one.reason if one.state != "held" or not one.failed_gates else "a gate failed"
    yield f"{one.unit}: {one.state}: {reason}"
    for node, gate in one.failed_gates.items():
        yield f"{one.unit}: {node}: gate: {gate}"
    if one.asked and one.asked != one.desired_state:
        declared = f"rack.yaml has state: {one.desired_state}"
        yield f"{one.unit}: {declared}, and the latest command was to {_VERBS[one.asked]} it"
    if one.files == "previous":
        verb = "serves" if one.state in SERVING else "has"
        which = f"the files of generation {one.previous}" if one.previous else "the files of an unknown generation"
        yield f"{one.unit}: {verb} its previous version, {which}: {_WENT_BACK}"
    elif one.files == "other":
        yield f"{one.unit}: has other files than rack.yaml declares; `sparkrack drift` shows which"
    elif one.files_unknown:
        yield f"{one.unit}: whether its files are those of rack.yaml is unknown: {one.files_unknown}"
    # In a state in which no rank is to run, one that is not idle has a detail: what is left of it.
    left = one.state not in SERVING and any(rank.detail and rank.state != "idle" for rank in one.ranks)
    if whole or left or len({rank.state for rank in one.ranks}) > 1:
        for rank in one.ranks:
            heard = "no report" if rank.age is None else f"report {rank.age:.0f} s ago"
            detail = f": {rank.detail}" if rank.detail else ""
            yield f"{one.unit}: {rank.node} (rank {rank.rank}): {rank.state}, {heard}{detail}"
    if figures := [f"{name} {one.figures[key]:g} s" for key, name in _FIGURES.items() if key in one.figures]:
        yield f"{one.unit}: {', '.join(figures)}"
    if one.phases and (whole or one.state == "starting"):
        now = datetime.now(UTC)
        yield f"{one.unit}: start: {', '.join(_phase(phase, one, now) for phase in one.phases)}"


def _phase(phase: StartPhase, unit: UnitStatus, now: datetime) -> str:
    """Return a phase of a start with its seconds, or with those since its begin, in words."""
    if phase.seconds is not None:
        return f"{phase.phase} {phase.seconds:g} s"
    if phase.begin is None or unit.state not in ("gating", "starting"):
        return f"{phase.phase} unknown"
    return f"{phase.phase} for {max(0.0, (now - phase.begin).total_seconds()):.0f} s"


_WENT_BACK = "`serve recreate` went back to it, and rack.yaml declares another one"
_VERBS = {"up": "start", "down": "stop"}
