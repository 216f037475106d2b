"""A plan as text: a summary, then the changes, of hosts that are alike once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from rich.console import Console
from rich.text import Text

from core.model.errors import printable
from core.util.event import Action, EventKind
from core.util.tables import print_sentence
from sparkrack.engine.alike_hosts import Entry, Row, content_entries, group_hosts, key_of, merge_hosts, show_row
from sparkrack.engine.plan import CHANGES, HostPlan, HostState, Message, OperationPlan, Plan

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

LEGEND = {
    "~": "changes",
    "+": "adds",
    "-": "removes",
    "!": "starts, restarts, reloads, stops",
    ">": "disturbs",
}
"""The marks, in the order of the legend."""

SUMMARISED_LINES = 20
"""A plan of so few lines has no summary: it is one."""
_NAMED = 3
"""Subjects that a summary names of what a run stops or removes. What it starts or restarts is named whole."""

_FILES = {Action.CREATE: "+", Action.MODIFY: "~", Action.REMOVE: "-"}
_LOUD = (EventKind.REFUSED, EventKind.UNKNOWN, EventKind.BROKEN)
_ENDS = frozenset(
    {
        Action.REMOVE,
        Action.MOVE,
        Action.STOP,
        Action.STOP_AND_MASK,
        Action.STOP_AND_REMOVE,
        Action.DISABLE,
        Action.SWAPOFF,
        Action.RELEASE,
        Action.REVOKE_LOGIN,
    }
)
"""Changes that take something away, which a summary names."""
_INTERRUPTS = frozenset({Action.RESTART, Action.STOP, Action.STOP_AND_MASK, Action.STOP_AND_REMOVE})
"""What happens to a service that does not answer meanwhile, or afterwards."""
_ENDED_CONTAINERS = re.compile(r"which (ends \d+ running containers?)")
"""How the restart of docker says what it ends."""
_DISTURBS_NOTHING = "disturbs nothing"


def show_plan(plan: Plan, *, quiet: bool = False, full: bool = False, console: Console | None = None) -> None:
    """Print a plan as text: a summary, then what is changed by group of hosts that are alike, then by role; the last
    line has the counts. `full`: each host by itself, and new files whole.
    """
    console = console or Console(highlight=False, markup=False, soft_wrap=True)
    shown = [host for host in plan.hosts if host.state is not HostState.IN_SYNC or host.operations]
    if quiet:
        for host in shown:
            _show_problems(console, host)
    else:
        names = [host.name for host in plan.hosts]
        groups = _group_alike_hosts(shown, names)
        blocks = [(group, _merge_rows(group, names)) for group in ([[host] for host in shown] if full else groups)]
        if sum(len(row.texts) for _, rows in blocks for top in rows for row in top.all_rows()) > SUMMARISED_LINES:
            for group in groups:
                _show_summary(console, group)
            print_sentence(console, interruptions(plan))
            print_sentence(console, total(plan), "bold")
            console.print()
        if marks := _render_legend(shown):
            print_sentence(console, marks, "dim")
        for group, rows in blocks:
            _show_changes(console, group, rows, full=full)
    print_sentence(console, total(plan), "bold")


def total(plan: Plan) -> str:
    """The last line: how many machines, changes and unknowns."""
    hosts, unknown = len(plan.hosts), len(plan.unknown_hosts)
    return f"{_counted_word(hosts, 'host')}, {_counted_word(plan.changes, 'change')}, {unknown} unknown"


def interruptions(plan: Plan) -> str:
    """Return what a run of the plan interrupts, in one line: which hosts must be rebooted after it, what it restarts or
    stops and on which hosts, what it disturbs on a switch, and the hosts of which that is unknown.
    """
    reboots = [
        host.name
        for host in plan.hosts
        if any(event.action is Action.REBOOT for _, event in host.events(EventKind.NOTE))
    ]
    restarts: dict[str, dict[str, str]] = {}
    for host in plan.hosts:
        for _, event in host.events(EventKind.RESTART):
            if event.action in _INTERRUPTS and event.subject:
                ends = _ENDED_CONTAINERS.search(event.detail or "")
                hosts = restarts.setdefault(event.subject, {})
                hosts[host.name] = (ends[1] if ends else "") or hosts.get(host.name, "")
    parts = [f"reboots: {', '.join(reboots)} (by sparkrack reboot, not by this run)" if reboots else "reboots: none"]
    parts.append(f"restarts: {', '.join(_restarted_on(*one) for one in restarts.items()) or 'none'}")
    for host in plan.hosts:
        effects = dict.fromkeys(
            event.detail or event.message
            for _, event in host.events(EventKind.EFFECT)
            if not event.message.endswith(_DISTURBS_NOTHING)
        )
        if effects:
            parts.append(f"{host.name}: {', '.join(effects)}")
    if plan.unknown_hosts:
        parts.append(f"unknown: {', '.join(host.name for host in plan.unknown_hosts)}")
    return printable("; ".join(parts))


def _restarted_on(subject: str, hosts: Mapping[str, str]) -> str:
    separator = "; " if any(hosts.values()) else ", "
    return f"{subject} ({separator.join(f'{name}: {ends}' if ends else name for name, ends in hosts.items())})"


def line(message: Message) -> Text:
    """Return the line of one event."""
    mark, style = MARKS[message.kind]
    text = message.message
    if message.kind is EventKind.FILE and message.action in _FILES:
        mark, text = f"{_FILES[message.action]} ", f"{message.path} ({message.action})"
    elif message.menu is not None and message.kind is EventKind.CHANGE:
        mark = ""  # a row of the switch brings its own
    return Text(f"{mark}{printable(text)}", style=style)


def _counted_word(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _show_problems(console: Console, host: HostPlan) -> None:
    if host.state is HostState.UNREACHABLE:
        print_sentence(console, _describe_unreachable(host))
    for _, message in host.events(*_LOUD):
        print_sentence(console, Text(f"{host.name}: ").append(line(message)))


def _describe_unreachable(host: HostPlan) -> Text:
    return Text(f"{host.name}: unreachable: {printable(host.reason)}", "red")


def _render_legend(hosts: Iterable[HostPlan]) -> str:
    """Return what the marks mean that occur in the plan of these hosts."""
    events = [event for host in hosts for _, event in host.events(*EventKind)]
    used = {line(event).plain[:2] for event in events} | {f"{text[:1]} " for event in events for text in event.diff}
    return "  ".join(f"{mark} {meaning}" for mark, meaning in LEGEND.items() if f"{mark} " in used)


def _group_alike_hosts(hosts: Iterable[HostPlan], names: Sequence[str]) -> list[list[HostPlan]]:
    """Return hosts in groups: of one kind and state, and alike. One that is unreachable is a group of its own."""
    sorts: dict[tuple[str, HostState], dict[str, HostPlan]] = {}
    for host in hosts:
        sorts.setdefault((host.kind, host.state), {})[host.name] = host
    return [
        [plans[name] for name in group]
        for plans in sorts.values()
        for group in group_hosts({name: _list_entries(host, names) for name, host in plans.items()})
    ]


def _list_entries(host: HostPlan, names: Sequence[str]) -> tuple[Entry, ...]:
    """Return the plan of a host as lines: role, operation, event, line of a file."""
    if host.state is HostState.UNREACHABLE:
        return (Entry(_describe_unreachable(host).plain, host.name, "event"),)
    return tuple(
        Entry(role, role, "title", below=tuple(_operation_entry(step, names) for step in steps))
        for role, steps in groupby(host.operations, key=lambda step: step.role)
    )


def _operation_entry(step: OperationPlan, names: Sequence[str]) -> Entry:
    below = tuple(_event_entry(event, names) for event in step.events)
    return Entry(step.title, key_of(step.title, names), "title", below=below)


def _event_entry(event: Message, names: Sequence[str]) -> Entry:
    text = line(event)
    return Entry(
        text.plain,
        f"{event.kind} {key_of(text.plain, names)}",
        "event",
        str(text.style),
        content_entries(event.diff, names),
        is_new_file=event.action is Action.CREATE,
    )


def _merge_rows(group: Sequence[HostPlan], names: Sequence[str]) -> tuple[Row, ...]:
    return merge_hosts({host.name: _list_entries(host, names) for host in group})


def _show_changes(console: Console, group: Sequence[HostPlan], rows: Sequence[Row], *, full: bool) -> None:
    """Print what a group of hosts reports and a run would change on it."""
    if group[0].state is HostState.UNREACHABLE:
        for host in group:
            print_sentence(console, _describe_unreachable(host))
        return
    hosts = [host.name for host in group]
    head = f"{', '.join(hosts)}: {group[0].state}"
    if len(group) > 1:
        every = [row for top in rows for row in top.all_rows()]
        differ = sum(row.differs(hosts) for row in every)
        head += f", alike but for {differ} of {len(every)} lines, which name their hosts" if differ else ", all alike"
    print_sentence(console, head, "bold")
    for row in rows:
        show_row(console, row, hosts, 1, full=full)


def _show_summary(console: Console, group: Sequence[HostPlan]) -> None:
    """Print how many changes each role makes on a group of hosts, and what they disturb."""
    if group[0].state is HostState.UNREACHABLE:
        for host in group:
            print_sentence(console, _describe_unreachable(host))
        return
    names = ", ".join(host.name for host in group)
    state = "" if group[0].state is HostState.CHANGES else f"{group[0].state}, "
    each = " each" if len(group) > 1 else ""
    print_sentence(console, f"{names}: {state}{_range_of([host.changes for host in group], 'change')}{each}", "bold")
    roles = list(dict.fromkeys(step.role for host in group for step in host.operations))
    for role in roles:
        counts = [sum(step.role == role for step, _ in host.events(*CHANGES)) for host in group]
        parts = [_range_of(counts, "change")] if any(counts) else []
        if parts := [*parts, *_list_disturbances(group, role)]:
            print_sentence(console, f"  {role}: {'; '.join(parts)}")


def _range_of(counts: Sequence[int], what: str) -> str:
    least, most = min(counts), max(counts)
    return _counted_word(most, what) if least == most else f"{least} to {_counted_word(most, what)}"


def _list_disturbances(group: Sequence[HostPlan], role: str) -> Iterator[str]:
    """Return what the changes of a role start, stop, remove or disturb, and what is in their way; the hosts are named
    where it is not the same on all of them.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for host in group:
        for step, event in host.events(*EventKind):
            if step.role == role and (part := _describe_disturbance(event)):
                found.setdefault(part, []).append(host.name)
    subjects: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (verb, subject), hosts in found.items():
        subjects.setdefault((verb, tuple(dict.fromkeys(hosts))), []).append(subject)
    for (verb, disturbed), names in subjects.items():
        left = len(names) - _NAMED if verb.startswith("~") else 0
        named = names[:_NAMED] if left > 1 else names
        more = f" and {left} more" if left > 1 else ""
        where = f" ({', '.join(disturbed)})" if len(disturbed) < len(group) else ""
        yield printable(f"{verb.removeprefix('~')}{(', ' if verb else '; ').join(named)}{more}{where}")


def _describe_disturbance(event: Message) -> tuple[str, str] | None:
    """Return what an event of a plan disturbs, as verb and subject; None for nothing. A verb with `~` before it may be
    shown with a few of its subjects.
    """
    subject = event.subject or event.path or ""
    match event.kind:
        case EventKind.RESTART:
            return (f"{event.action} ", subject) if event.action else ("", event.message)
        case EventKind.EFFECT:
            return None if event.message.endswith(_DISTURBS_NOTHING) else ("", event.detail or event.message)
        case EventKind.CHANGE | EventKind.FILE if event.action in _ENDS:
            return f"~{event.action} ", " ".join(part for part in (event.menu, subject) if part)
        case EventKind.NOTE if event.action in (Action.REBOOT, Action.UPGRADE):
            return "", event.message
        case EventKind.REFUSED | EventKind.UNKNOWN | EventKind.BROKEN:
            return "", line(event).plain
    return None
