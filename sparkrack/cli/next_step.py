"""The last line of a command: the command to run next, ready to paste."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from core.model.loader import is_default
from sparkrack.engine.plan_obstacles import command_that_ends_unit, hosts_to_edit, nodes_without_sudo
from sparkrack.engine.subcommands import WITHIN

if TYPE_CHECKING:
    from sparkrack.engine.plan import Plan

_found: list[str] = []
"""The next steps that this command has found; the report of an error finds none after one of them."""
_unprinted: list[str] = []
"""The lines of those that are not silent, until the command has printed everything else."""
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
    """Print the command to run next to stderr, when the command of this process ends.

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
    """Print a line of shell as the next step when the command ends, unless it is silent or within another command of
    sparkrack.
    """
    _found.append(line)
    if not silent and not os.environ.get(WITHIN):
        _unprinted.append(f"Next{f', {reason}' if reason else ''}: {line}")


def print_found_steps() -> None:
    """Print the next steps that the command has found. It is called last: the reason of a failure stands above them."""
    lines = tuple(_unprinted)
    _unprinted.clear()
    for line in lines:
        click.echo(line, err=True)


def same_again(reason: str) -> None:
    """Print the command of this process as the next step after an error, unless a step was found already, or the
    command is one that prints none, or there is no command: `sparkrack --help` that cannot write.
    """
    if _arguments and not _found:
        print_next(shlex.join(("sparkrack", *_arguments)), reason, silent=_is_silent())


def unlock_dead_run(run: str) -> None:
    """Print how to end the lock of a dead run, in the rack that the command of this process names."""
    words = ["sparkrack", "unlock", run]
    for word, following in zip(_arguments, [*_arguments[1:], ""], strict=True):
        if word == "--rack" or word.startswith("--rack="):
            words += ["--rack", following if word == "--rack" else word.removeprefix("--rack=")]
    print_next(shlex.join(words), "to end the lock of the dead run", silent=_is_silent())


def _is_silent() -> bool:
    return any(word in ("--json", "--quiet", "--markdown") for word in _arguments)


def begin(arguments: Sequence[str]) -> None:
    """Begin a command with these arguments: no step was found yet."""
    _found.clear()
    _unprinted.clear()
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
    if names := nodes_without_sudo(plan):
        next_step(["sparkrack", "bootstrap", "nodes", *names], "to fix sudo", rack=rack, silent=silent)
    elif names := hosts_to_edit(plan):
        given.update(limit=names, exclude=())
        next_step(["sparkrack", "plan"], f"after the edits that are named above, on {', '.join(names)}", **given)
    elif command := command_that_ends_unit(plan):
        next_step(shlex.split(command), "and then the same again", rack=rack, silent=silent)
    elif len(stopped) < len(plan.hosts):
        given["exclude"] = (*given.get("exclude", ()), *stopped)
        given["limit"] = [name for name in given.get("limit", ()) if name not in stopped]
        next_step(["sparkrack", "apply"], "without the hosts that are not ready", **given)
    else:
        next_step(then, "when the reasons above are fixed", **given)
