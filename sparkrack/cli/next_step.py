"""The last line of a command: the command to run next, ready to paste."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from core.model.errors import NO_SUDO
from core.model.loader import is_default
from core.util.event import EventKind
from sparkrack.engine.subcommands import WITHIN

if TYPE_CHECKING:
    from sparkrack.engine.plan import HostPlan, Plan

_UNIT_COMMAND = re.compile(r"`(sparkrack serve (?:stop|recreate) [\w.-]+)`")
"""How a refusal names what ends a unit that is in the way."""
_printed: list[str] = []
"""The next steps that this process has printed; the report of an error prints none after one of them."""
_after_error: list[Callable[[], None]] = []
"""What prints the next step of the error that is to follow."""
_arguments: list[str] = []
"""The arguments of the command of this process."""


def next_step(
    command: Sequence[str],
    reason: str = "",
    *,
    rack: Path | None = None,
    limit: Iterable[str] = (),
    exclude: Iterable[str] = (),
    only: Iterable[str] = (),
    silent: bool = False,
) -> None:
    """Print the command to run next to stderr.

    `rack`, `limit`, `exclude` and `only` are repeated as options where the operator gave them. `reason`: its purpose,
    after "Next, ". silent: print nothing (with --json and --quiet).
    """
    words = list(command)
    if rack is not None and not is_default(rack):
        words += ["--rack", str(rack)]
    for option, names in (("--limit", limit), ("--exclude", exclude), ("--only", only)):
        words += [word for name in names for word in (option, name)]
    print_next(shlex.join(words), reason, silent=silent)


def print_next(line: str, reason: str = "", *, silent: bool = False) -> None:
    """Print a line of shell as the next step, unless it is silent or within another command of sparkrack."""
    _printed.append(line)
    if not silent and not os.environ.get(WITHIN):
        click.echo(f"Next{f', {reason}' if reason else ''}: {line}", err=True)


def same_again(reason: str) -> None:
    """Print the command of this process as the next step after an error, unless a step was printed already, or the
    command is one that prints none, or there is no command: `sparkrack --help` that cannot write.
    """
    if _after_error:
        _after_error.pop()()
    elif _arguments and not _printed:
        silent = any(word in ("--json", "--quiet", "--markdown") for word in _arguments)
        print_next(shlex.join(("sparkrack", *_arguments)), reason, silent=silent)


def after_error(show: Callable[[], None]) -> None:
    """Have a next step printed below the error that is to follow, in the place of the command of this process."""
    _after_error[:] = [show]


def begin(arguments: Sequence[str]) -> None:
    """Begin a command with these arguments: no step was printed yet."""
    _printed.clear()
    _after_error.clear()
    _arguments[:] = arguments


def after_plan(plan: Plan, then: Sequence[str], reason: str = "", **given: Any) -> None:
    """Print what to run after a look at the rack: `then`, or the way past the hosts that are unknown or refused.

    `given`: the options of `next_step`.
    """
    stopped = [host.name for host in plan.unknown_hosts]
    if not stopped:
        next_step(then, reason, **given)
        return
    rack, silent = given.get("rack"), given.get("silent", False)
    if names := [host.name for host in plan.unknown_hosts if _wants_bootstrap(host)]:
        next_step(["sparkrack", "bootstrap", "nodes", *names], "to fix sudo", rack=rack, silent=silent)
    elif names := [host.name for host in plan.unknown_hosts if _wants_edit(host)]:
        given.update(limit=names, exclude=())
        next_step(["sparkrack", "plan"], f"after the edits that are named above, on {', '.join(names)}", **given)
    elif command := _stop_of_unit(plan):
        next_step(shlex.split(command), "and then the same again", rack=rack, silent=silent)
    elif len(stopped) < len(plan.hosts):
        given["exclude"] = (*given.get("exclude", ()), *stopped)
        given["limit"] = [name for name in given.get("limit", ()) if name not in stopped]
        next_step(["sparkrack", "apply"], "without the hosts that are not ready", **given)
    else:
        next_step(then, "when the reasons above are fixed", **given)


def _stop_of_unit(plan: Plan) -> str:
    """Return what ends the first unit that is in the way, where each host that is refused names such a command."""
    found = [
        next((command[1] for text in texts if (command := _UNIT_COMMAND.search(text))), "")
        for texts in ([event.message for _, event in host.events(EventKind.REFUSED)] for host in plan.unknown_hosts)
    ]
    return found[0] if all(found) else ""


def _wants_edit(host: HostPlan) -> bool:
    """Whether a file of others, of netplan, sshd or docker, must be edited on the host first."""
    texts = (event.message for _, event in host.events(EventKind.REFUSED))
    return any(text in message for message in texts for text in ("(sudoedit ", "(sudo systemctl edit "))


def _wants_bootstrap(host: HostPlan) -> bool:
    texts = (host.reason, *(event.message for _, event in host.events(EventKind.UNKNOWN)))
    return host.kind == "node" and any(NO_SUDO in text for text in texts)
