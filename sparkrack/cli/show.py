"""A plan on the screen."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from rich.console import Console
from rich.text import Text

from sparkrack.fleet.errors import printable
from sparkrack.ops.account import Sort
from sparkrack.run.plan import Machine, Plan, Said, Standing, Step

MARKS: Mapping[Sort, tuple[str, str]] = {
    Sort.CHANGE: ("~ ", "yellow"),
    Sort.FILE: ("", "yellow"),
    Sort.RESTART: ("! ", "magenta"),
    Sort.EFFECT: ("> ", "magenta"),
    Sort.NOTE: ("note: ", "cyan"),
    Sort.FAULT: ("does not work: ", "red"),
    Sort.FLEET: ("unlike the others: ", "yellow"),
    Sort.UNMANAGED: ("left alone, not managed: ", "cyan"),
    Sort.REFUSED: ("refused: ", "red"),
    Sort.UNKNOWN: ("unknown: ", "red"),
}
"""What stands before each kind of line, and its colour. The words alone say everything."""

__all__ = ["MARKS", "line", "printable", "show_plan", "total"]

_FILES = {"create": "+", "modify": "~", "remove": "-"}
_LOUD = (Sort.REFUSED, Sort.UNKNOWN, Sort.FAULT)


def show_plan(plan: Plan, *, quiet: bool = False, console: Console | None = None) -> None:
    """Print a plan for a person: by machine, then by role; the last line counts."""
    console = console or Console(highlight=False, markup=False, soft_wrap=True)
    for machine in plan.machines:
        if machine.standing is not Standing.IN_SYNC or machine.steps:
            _machine(console, machine, quiet)
    console.print(total(plan), style="bold")


def total(plan: Plan) -> str:
    """The last line: how many machines, changes and unknowns."""
    hosts, unknown = len(plan.machines), len(plan.untold)
    return f"{_count(hosts, 'host')}, {_count(plan.changes, 'change')}, {unknown} unknown"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _machine(console: Console, machine: Machine, quiet: bool) -> None:
    if machine.standing is Standing.UNREACHABLE:
        console.print(f"{machine.name}: unreachable: {printable(machine.why)}", style="red")
        return
    if quiet:
        for step, said in machine.said(*_LOUD):
            console.print(Text(f"{machine.name}: ").append(line(said, step)))
        return
    console.print(f"{machine.name}: {machine.standing}", style="bold")
    for role, steps in groupby(machine.steps, key=lambda step: step.role):
        console.print(f"  {role}")
        for step in steps:
            _step(console, step)


def _step(console: Console, step: Step) -> None:
    console.print(f"    {step.title}")
    for said in step.said:
        console.print(Text("      ").append(line(said, step)))
        for text in said.diff:
            style = "green" if text.startswith("+") else "red" if text.startswith("-") else "dim"
            console.print(Text(f"        {printable(text)}", style=style))


def line(said: Said, step: Step) -> Text:
    """One line about one thing."""
    mark, style = MARKS[said.sort]
    text = said.text
    if said.sort is Sort.FILE:
        verb, _, path = text.partition(" ")
        mark, text = f"{_FILES.get(verb, '~')} ", f"{path} ({verb})"
    elif said.sort is Sort.CHANGE and text.startswith(("+ ", "~ ", "- ")):
        mark = ""  # a row of the switch brings its own
    return Text(f"{mark}{printable(text.removeprefix(f'{step.role}: '))}", style=style)
