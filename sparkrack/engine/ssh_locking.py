"""The lock of a rack over OpenSSH, for commands that do not drive pyinfra."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from shlex import quote

from core.model import Rack
from core.model.errors import printable_line
from core.ops import run_lock
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import RootShell, UnreachableError
from core.util.command_error import CommandError
from sparkrack.engine.rack_lock import LOST, RackLock

ANSWER_SECONDS = 30
"""Seconds for an answer of the head node."""


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr)


class ShellRunner:
    """Runs scripts on the head node, over a second shell when the first gives no answer."""

    def __init__(self, shell: RootShell) -> None:
        self.shell = shell

    def __call__(self, script: str, stdin: str | None) -> tuple[int, str]:
        """Run a script; return its exit status, LOST for none, and its output."""
        if stdin is not None:
            script = f"echo {stdin} | sh -c {quote(script)}"
        try:
            return run_script(self.shell, script)
        except UnreachableError:
            # By a restart, or by Ctrl-C, which ends ssh as well: another shell is opened.
            pass
        except BaseException:
            self.shell.close()  # a late answer must not count for a later question
            raise
        try:
            return run_script(self.shell, script)
        except UnreachableError as gone:
            return LOST, gone.why


def run_script(shell: RootShell, script: str) -> tuple[int, str]:
    """Run a script on a node and return its exit status and output. Raises UnreachableError."""
    try:
        done = shell.run(script)
    except OSError as error:
        raise UnreachableError(shell.hostname, f"ssh: {error.strerror or error}") from None
    return done.rc, str(done.stdout).strip() or str(done.stderr).strip()


@contextmanager
def hold_lock(rack: Rack, what: str | run_lock.Holder, say: Callable[[str], None] = _to_stderr) -> Iterator[RackLock]:
    """Hold the lock of a rack in the block. `what`: the hosts that the run is about, or the run itself. `say`: prints a
    line. Raises LockError when it cannot be taken, and CommandError at the end when there was a problem with it.
    """
    head = next(iter(rack.nodes))
    with open_shells(rack, [head], ANSWER_SECONDS) as shells, _hold_lock(shells[head], what, say) as held:
        yield held


@contextmanager
def lock_if_reachable(
    rack: Rack,
    what: str | run_lock.Holder,
    alone: Callable[[str], None],
    say: Callable[[str], None] = _to_stderr,
) -> Iterator[Callable[[], str]]:
    """As `hold_lock`, for what may have to be done while the head node is dead or not set up yet: if it cannot be
    reached, `alone` is called with the reason, and unless it raises, the block runs without the lock. A head node that
    answers decides: a lock that another run holds there, or that cannot be written, is an error. Yields
    `RackLock.lost`, which returns why nothing more may be sent."""
    head = next(iter(rack.nodes))
    with open_shells(rack, [head], ANSWER_SECONDS) as shells:
        try:
            run_script(shells[head], "true")
        except UnreachableError as gone:
            shells[head].close()
            why = gone.why
        else:
            with _hold_lock(shells[head], what, say) as held:
                yield held.lost
            return
        alone(f"{head}, which stores the lock of the rack, is unreachable: {why}")
        yield lambda: ""


@contextmanager
def _hold_lock(shell: RootShell, what: str | run_lock.Holder, say: Callable[[str], None]) -> Iterator[RackLock]:
    own = run_lock.new_holder(what) if isinstance(what, str) else what
    held = RackLock(str(shell.hostname), own, ShellRunner(shell), say)
    with _ended_as_by_a_person():
        try:
            held.take()
        except KeyboardInterrupt:
            held.give_back()  # it may have been taken
            raise
        except BaseException:
            shell.close()
            raise
        try:
            with held.renewing():
                yield held
        except BaseException:
            if fault := held.give_back():
                say(fault)
            raise
        if fault := held.give_back():
            raise CommandError(fault)


@contextmanager
def _ended_as_by_a_person() -> Iterator[None]:
    """Treat SIGTERM, and SIGHUP when the terminal is closed, as Ctrl-C in the block: by default they end Python at
    once, and the lock stays. An ignored signal, as under nohup, stays ignored.
    """
    numbers = [
        number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.Handlers.SIG_DFL
    ]
    try:
        for number in numbers:
            signal.signal(number, signal.default_int_handler)
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def end_lock(rack: Rack, run: str) -> str:
    """End the lock of a run, and return what was done. Raises CommandError when another run holds it, or the head node
    does not answer.
    """
    head = next(iter(rack.nodes))
    with open_shells(rack, [head], ANSWER_SECONDS) as shells:
        try:
            code, text = run_script(shells[head], run_lock.read_script())
            other = run_lock.describe_holder(text)
            if code == 0 and other.id == run:
                code, text = run_script(shells[head], run_lock.release(run_lock.content(text)))
            elif code == 0:
                code = run_lock.HELD
        except UnreachableError as fault:
            raise CommandError(str(fault)) from None
    if code == run_lock.GONE:
        return "no run holds the rack"
    if code == run_lock.HELD:
        raise CommandError(f"{run_lock.describe_holder(text)} holds the rack, not {run}")
    if code:
        raise CommandError(f"{head}: {printable_line(text) or f'exit {code}'}")
    return f"ended the lock of {other}"
