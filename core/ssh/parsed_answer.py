"""What a node answers to a script, parsed, or why there is no answer in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from core.ssh.root_shell import UnreachableError

Parsed = TypeVar("Parsed")


def parsed_answer(run: Callable[[str], Any], script: str, parse: Callable[[str], Parsed]) -> Parsed | str:
    """Run a script on a node, and return its parsed output, or a sentence without the name of the node.

    Args:
        run: runs a shell text and returns its `rc`, `stdout` and `stderr`, as of `RootShell` and of a `Machine`.
        script: the shell text.
        parse: raises ValueError for an invalid answer.
    """
    try:
        done = run(script)
    except UnreachableError as gone:
        return f"cannot be asked: {gone.why}"
    if done.rc != 0:
        return f"cannot be asked: {done.stderr.strip() or f'exit {done.rc}'}"
    try:
        return parse(done.stdout)
    except ValueError as fault:
        return f"cannot be understood: {fault}"
