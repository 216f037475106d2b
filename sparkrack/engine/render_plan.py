"""A plan as text."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from rich.console import Console
from rich.text import Text

from core.model.errors import printable
from core.util.event import Action, EventKind
from core.util.tables import print_sentence
from sparkrack.engine.plan import HostPlan, HostState, Message, OperationPlan, Plan

MARKS: Mapping[EventKind, tuple[str, str]] = {
    EventKind.CHANGE: ("~ ", "yellow"),
    EventKind.FILE: ("", "yellow"),
    EventKind.RESTART: ("! ", "magenta"),
    EventKind.EFFECT: ("> ", "magenta"),
    EventKind.NOTE: ("note: ", "cyan"),
    EventKind.BROKEN: ("does not work: ", "red"),
    EventKind.OUTLIER: ("unlike the others: ", "yellow"),
    EventKind.UNMANAGED: ("left alone, not managed: ", "cyan"),
    EventKind.REFUSED: ("refused: ", "red"),
    EventKind.UNKNOWN: ("unknown: ", "red"),
}
"""Mark and colour of each kind of line. The words alone carry all information."""

_FILES = {Action.CREATE: "+", Action.MODIFY: "~", Action.REMOVE: "-"}
_LOUD = (EventKind.REFUSED, EventKind.UNKNOWN, EventKind.BROKEN)


def show_plan(plan: Plan, *, quiet: bool = False, console: Console | None = None) -> None:
    """Print a plan as text: by host, then by role; the last line has the counts."""
    console = console or Console(highlight=False, markup=False, soft_wrap=True)
    for machine in plan.hosts:
        if machine.state is not HostState.IN_SYNC or machine.operations:
            _machine(console, machine, quiet)
    print_sentence(console, total(plan), "bold")


def total(plan: Plan) -> str:
    """The last line: how many machines, changes and unknowns."""
    hosts, unknown = len(plan.hosts), len(plan.unknown_hosts)
    return f"{_counted_word(hosts, 'host')}, {_counted_word(plan.changes, 'change')}, {unknown} unknown"


def _counted_word(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _machine(console: Console, machine: HostPlan, quiet: bool) -> None:
    if machine.state is HostState.UNREACHABLE:
        print_sentence(console, f"{machine.name}: unreachable: {printable(machine.reason)}", "red")
        return
    if quiet:
        for _, message in machine.events(*_LOUD):
            print_sentence(console, Text(f"{machine.name}: ").append(line(message)))
        return
    console.print(f"{machine.name}: {machine.state}", style="bold")
    for role, steps in groupby(machine.operations, key=lambda step: step.role):
        console.print(f"  {role}")
        for step in steps:
            _show_operation(console, step)


def _show_operation(console: Console, step: OperationPlan) -> None:
    print_sentence(console, f"    {step.title}")
    for message in step.events:
        print_sentence(console, Text("      ").append(line(message)))
        for text in message.diff:
            style = "green" if text.startswith("+") else "red" if text.startswith("-") else "dim"
            console.print(Text(f"        {printable(text)}", style=style))


def line(message: Message) -> Text:
    """Return the line of one event."""
    mark, style = MARKS[message.kind]
    text = message.message
    if message.kind is EventKind.FILE and message.action in _FILES:
        mark, text = f"{_FILES[message.action]} ", f"{message.path} ({message.action})"
    elif message.menu is not None and message.kind is EventKind.CHANGE:
        mark = ""  # a row of the switch brings its own
    return Text(f"{mark}{printable(text)}", style=style)
