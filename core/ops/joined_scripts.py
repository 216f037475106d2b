"""Send scripts that follow one another as one command: each command costs a login shell, sudo and a round trip."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pyinfra.api.command import PyinfraCommand

from core.ops.shell import QuickScript, RootScript, quick_script, sudo_script

MAX_SCRIPT_BYTES = 24 << 10
"""Bytes of one command. An argument may have 128 KiB, and sudo's shell gets it in quotes."""
MAX_INPUT_BYTES = 4 << 20
"""Bytes of the inputs of one command together: the node's shell holds one of them at a time."""
_BASE64 = re.compile("[A-Za-z0-9+/=]*")
_CUT_OFF = "the input of the command was cut off; nothing of it was used"


def join_scripts(commands: Iterable[PyinfraCommand]) -> Iterator[PyinfraCommand]:
    """Yield commands in their order, those scripts as one command of which all but the last are quick.

    Each script keeps its variables, its trap, its input and its end at the first failure, and none runs after one that
    failed. A run that has lost the lock sends nothing more; so nothing is joined to the end of a script that may take
    long. An input in base64 counts only when all of it came.
    """
    waiting: list[RootScript] = []
    for command in commands:
        if waiting and not _fits(waiting, command):
            yield _join(waiting)
            waiting = []
        if isinstance(command, RootScript) and _can_be_joined(command):
            waiting.append(command)
            if not isinstance(command, QuickScript):
                yield _join(waiting)
                waiting = []
        else:
            yield command
    if waiting:
        yield _join(waiting)


def _can_be_joined(command: PyinfraCommand) -> bool:
    return (
        isinstance(command, RootScript) and not command.limited and _BASE64.fullmatch(command.stdin or "") is not None
    )


def _fits(before: list[RootScript], command: PyinfraCommand) -> bool:
    scripts = [*before, command]
    known = [one for one in scripts if isinstance(one, RootScript) and _can_be_joined(one)]
    return (
        len(known) == len(scripts)
        and sum(len(one.script) for one in known) <= MAX_SCRIPT_BYTES
        and sum(len(one.stdin or "") for one in known) <= MAX_INPUT_BYTES
    )


def _join(scripts: list[RootScript]) -> RootScript:
    (first, *more) = scripts
    if not more and first.stdin is None:
        return first
    text = "\n".join(_run_apart(one) for one in scripts)
    inputs = [one.stdin for one in scripts if one.stdin]
    # What ends quickly as a whole is quick for those who look at it later.
    make = quick_script if all(isinstance(one, QuickScript) for one in scripts) else sudo_script
    joined = make(text, "".join(inputs) if inputs else None)
    joined.parts = tuple(scripts)
    return joined


def _run_apart(one: RootScript) -> str:
    """Return shell text that runs a script in a shell of its own. Not in a condition: there it would not end at its
    first failure."""
    if not one.stdin:
        return f"(\n{one.script}\n) < /dev/null"
    # No program reads more than its part: head asks the pipe for exactly so many bytes. printf is part of the shell.
    size = len(one.stdin)
    return (
        f"part=$(head -c {size}); [ ${{#part}} -eq {size} ] || {{ echo '{_CUT_OFF}' >&2; exit 1; }}\n"
        f'printf %s "$part" | (\n{one.script}\n)'
    )
