"""The lock of a rack over OpenSSH, for commands that do not drive pyinfra."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from sparkrack.fleet import Rack
from sparkrack.ops import lock
from sparkrack.ops.shell import quote
from sparkrack.proof.shell import RootShell, UnreachableError

SECONDS = 30
"""How long the head node may take to answer."""
LOST = 255
"""In place of an exit code: the node gave none."""


class Held:
    """The lock of a rack as one run holds it. `head`: the node that keeps it."""

    def __init__(self, rack: Rack, config: Path, what: str) -> None:
        """`config`: the OpenSSH configuration that knows the nodes. `what`: which machines the run is about."""
        self.head = next(iter(rack.nodes))
        self._shell = RootShell(self.head, config, SECONDS)
        self._mine = lock.me(what)
        self._restarts = False

    def take(self) -> None:
        """Take it, also anew after the head node has restarted. Raises ClickException when it cannot be taken."""
        script, text = lock.take(self._mine)
        fault = lock.not_taken(self.head, self._mine, *self._run(f"echo {text} | sh -c {quote(script)}"))
        if fault:
            raise click.ClickException(fault)
        self._restarts = False

    def restarts(self) -> None:
        """The head node is going to restart, and the lock will go with it."""
        self._restarts = True

    def give_back(self) -> str | None:
        """What is wrong with the lock at the end, if anything."""
        code, said = self._run(lock.release(self._mine.text.encode()))
        self._shell.close()
        return None if self._restarts else lock.not_given_back(self.head, self._mine, code, said)

    def _run(self, script: str) -> tuple[int, str]:
        """How a script ended, and what it said."""
        try:
            return said(self._shell, script)
        except UnreachableError:
            # By a restart, or by Ctrl-C, which ends ssh as well: another shell is opened.
            pass
        try:
            return said(self._shell, script)
        except UnreachableError as gone:
            return LOST, gone.why


def said(shell: RootShell, script: str) -> tuple[int, str]:
    """How a script ended on a node, and what it said. Raises UnreachableError."""
    done = shell.run(script)
    return done.rc, str(done.stdout).strip() or str(done.stderr).strip()


@contextmanager
def holding(rack: Rack, config: Path, what: str) -> Iterator[Held]:
    """Hold the lock of a rack meanwhile. Raises ClickException when it cannot be taken, and at the end when something
    was wrong with it."""
    held = Held(rack, config, what)
    held.take()
    try:
        yield held
    except BaseException:
        fault = held.give_back()
        if fault:
            click.echo(fault, err=True)
        raise
    fault = held.give_back()
    if fault:
        raise click.ClickException(fault)
