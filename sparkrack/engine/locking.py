"""The lock of a rack, taken, renewed and released over the head node's connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import gevent
from paramiko import SSHException
from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host

from core.ops import run_lock
from core.ops.reconnect import run_on_new_connection
from core.ops.run_lock import Holder, LockError
from sparkrack.engine.rack_lock import LOST, RackLock
from sparkrack.engine.session import RunSession

SCRIPT_SECONDS = 20
"""Seconds for one script on the head node; a check over a new connection has its own limit."""


class HeadNodeError(LockError):
    """The head node, `name`, gives no root shell because of `why`. `reason`: both, as a sentence."""

    def __init__(self, name: str, why: str) -> None:
        self.reason = f"{name}, which stores the lock of the rack, is unreachable: {why}"
        super().__init__(f"{self.reason}; nothing was changed")


@contextmanager
def locked(
    session: RunSession,
    own: Holder,
    agreed: Callable[[Holder], bool] = lambda _: False,
    say: Callable[[str], None] = lambda _: None,
    beat: float = run_lock.BEAT,
) -> Iterator[RackLock]:
    """Hold the lock in the block, and renew it every `beat` seconds. `agreed`, `say`: as in `run_lock`.

    A lock that was inherited is renewed only: the command that has started this one releases it.

    Raises LockError when it cannot be taken, also because the head node cannot be reached: it need not be one of the
    selected hosts.
    """
    name = next(iter(session.rack.nodes))
    outer = run_lock.inherited()
    with _connect_head(session, name) as head:
        held = RackLock(name, outer or own, partial(_run_twice, head), say, agreed, inherited=outer is not None)
        try:
            held.take()
        except LockError:
            raise
        except BaseException:
            held.give_back()  # interrupted by the operator: it may have been taken
            raise
        run_lock.register_run(session.state, held.own.id, held.lost)
        renewing = gevent.spawn(_renew_regularly, held, beat)
        try:
            yield held
        finally:
            renewing.kill()
            held.give_back()


@contextmanager
def locked_if_reachable(
    session: RunSession,
    own: Holder,
    alone: Callable[[str], None],
    agreed: Callable[[Holder], bool] = lambda _: False,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[RackLock | None]:
    """As `locked`, for a run that concerns switches only: if the head node gives no root shell, `alone` is called with
    the reason, and unless it raises, the block runs without the lock and gets None. A head node that answers decides: a
    lock that another run holds there, or that cannot be written, is a LockError.
    """
    if why := _explain_unreached_head(session):
        alone(why)
        yield None
        return
    with locked(session, own, agreed, say) as held:
        yield held


def _explain_unreached_head(session: RunSession) -> str:
    """Return why the head node gives no root shell; empty when it does."""
    name = next(iter(session.rack.nodes))
    try:
        with _connect_head(session, name) as head:
            code, output = _run_script(head, "true")
    except HeadNodeError as fault:
        return fault.reason
    return HeadNodeError(name, output or f"exit {code}").reason if code else ""


def look(session: RunSession, asks: bool = False) -> None:
    """Raise LockError if another run holds the rack: no host need be read then.

    An unknown state is left to the later taking of the lock, and so is an expired lock, or that of a dead run of this
    machine if that `asks` whether to end it: without changes no lock is needed.
    """
    name = next(iter(session.rack.nodes))
    with suppress(HeadNodeError), _connect_head(session, name) as head:
        code, output = _run_script(head, run_lock.lock_query())
        if code == 0:
            other, expired = run_lock.parse_lock_query(output)
            if other != run_lock.inherited() and not expired and not (asks and other.dead):
                raise LockError(other.busy, other.unlockable)


def _renew_regularly(held: RackLock, beat: float) -> None:
    while not held.lost():
        gevent.sleep(beat)
        held.renew()


@contextmanager
def _connect_head(session: RunSession, name: str) -> Iterator[Host]:
    """The head node, connected for this long if it was not."""
    head = session.hosts[name]
    if head.connected:
        yield head
        return
    head.connect(show_errors=False)
    if not head.connected:
        why = session.unreachable.get(name, "no connection")
        raise HeadNodeError(name, why)
    try:
        yield head
    finally:
        if name not in session.selection.machines:  # otherwise the session still uses it, and closes it
            head.disconnect()


def _run_twice(head: Host, script: str, stdin: str | None) -> tuple[int, str]:
    """Run a script; without an input again over another connection if there is no answer: the run itself may have
    broken the first one.
    """
    code, output = _run_script(head, script, stdin)
    if code != LOST or stdin is not None:
        return code, output
    try:
        return _parse_exit_code(*run_on_new_connection(head, _append_exit_code(script)))
    except OSError as error:
        return LOST, str(error)


def _run_script(head: Host, script: str, stdin: str | None = None) -> tuple[int, str]:
    """Run a script and return its exit status and output."""
    extra = {} if stdin is None else {"_stdin": stdin}
    try:
        fine, output = head.run_shell_command(
            StringCommand(_append_exit_code(script)),
            print_output=False,
            print_input=head.state.print_input,
            _sudo=True,
            _timeout=SCRIPT_SECONDS,
            **extra,
        )
    except (OSError, EOFError, SSHException) as error:
        return LOST, str(error) or "the connection ended"
    return _parse_exit_code(fine, [*output.stdout_lines, *([] if fine else output.stderr_lines)])


def _append_exit_code(script: str) -> str:
    """The script with its exit code on a last line: pyinfra drops it."""
    return f"o=$({{ {script}; }} 2>&1); printf '%s\\n%d\\n' \"$o\" $?"


def _parse_exit_code(fine: bool, lines: list[str]) -> tuple[int, str]:
    *output, code = lines or [""]
    if fine and code.isdigit():
        return int(code), "\n".join(output).strip()
    return LOST, "\n".join(lines).strip()
