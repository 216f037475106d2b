"""The lock of a rack, taken, renewed and released over the head node's connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import gevent
from paramiko import SSHException
from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host

from core.ops import run_lock
from core.ops.reconnect import run_on_new_connection
from core.ops.run_lock import Holder, LockError
from sparkrack.engine.session import RunSession

LOST = 255
"""In place of an exit code: the node gave none."""
SCRIPT_SECONDS = 20
"""Seconds for one script on the head node; a check over a new connection has its own limit."""


class HeadNodeError(LockError):
    """The head node, `name`, gives no root shell because of `why`. `reason`: both, as a sentence."""

    def __init__(self, name: str, why: str) -> None:
        self.reason = f"{name}, which stores the lock of the rack, is unreachable: {why}"
        super().__init__(f"{self.reason}; nothing was changed")


@dataclass
class RunLock:
    """The lock as a run holds it. `left`: what was wrong with it at the end, if anything."""

    head: Host
    name: str
    own: Holder
    left: list[str] = field(default_factory=list)
    _renewed: float = field(default_factory=run_lock.clock)
    _taken_away: str = ""

    @property
    def lost(self) -> str:
        """Why this run must send nothing any more; empty as long as it holds the lock."""
        return self._taken_away or run_lock.expiry_reason(self.name, run_lock.clock() - self._renewed)

    def renew(self) -> None:
        """Say to the head node that this run lives. What does not get through is tried again at the next time."""
        began = run_lock.clock()
        script = run_lock.renew(self.own.text.encode())
        code, output = _run(self.head, script)
        if code == LOST:
            try:
                code, output = _understood(*run_on_new_connection(self.head, _counted(script)))
            except OSError:
                return
        if code == 0:
            self._renewed = began  # the node's own time is later, so the lock does not expire there before it does here
        elif code in (run_lock.HELD, run_lock.GONE):
            self._taken_away = run_lock.release_error(self.name, self.own, code, output) or ""


@contextmanager
def locked(
    session: RunSession,
    own: Holder,
    agreed: Callable[[Holder], bool] = lambda _: False,
    say: Callable[[str], None] = lambda _: None,
    beat: float = run_lock.BEAT,
) -> Iterator[RunLock]:
    """Hold the lock in the block, and renew it every `beat` seconds. `agreed`, `say`: as in `run_lock`.

    A lock that was inherited is renewed only: the command that has started this one releases it.

    Raises LockError when it cannot be taken, also because the head node cannot be reached: it need not be one of the
    selected hosts.
    """
    name = next(iter(session.rack.nodes))
    outer = run_lock.inherited()
    with _reached(session, name) as head:
        try:
            began = run_lock.clock()
            if outer:
                own = outer
                _check_inherited(head, name, outer)
            else:
                run_lock.already_locked(name, own, lambda script, stdin: _run(head, script, stdin), agreed, say)
        except LockError:
            raise
        except BaseException:
            if not outer:
                _give_back(head, name, own)  # interrupted by the operator: it may have been taken
            raise
        held = RunLock(head, name, own, _renewed=began)
        run_lock.lock_command(session.state, own.id, lambda: held.lost)
        renewing = gevent.spawn(_renewing, held, beat)
        try:
            yield held
        finally:
            renewing.kill()
            fault = None if outer else _give_back(head, name, own)
            held.left += [fault] if fault else []


def _check_inherited(head: Host, name: str, outer: Holder) -> None:
    """Renew the lock of the command that has started this one. Raises LockError when that does not hold it."""
    code, output = _run(head, run_lock.renew(outer.text.encode()))
    if fault := run_lock.release_error(name, outer, code, output):
        raise LockError(f"{fault}; nothing was changed")


@contextmanager
def locked_if_reachable(
    session: RunSession,
    own: Holder,
    alone: Callable[[str], None],
    agreed: Callable[[Holder], bool] = lambda _: False,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[RunLock | None]:
    """As `locked`, for a run that concerns switches only: if the head node gives no root shell, `alone` is called with
    the reason, and unless it raises, the block runs without the lock and gets None. A head node that answers decides: a
    lock that another run holds there, or that cannot be written, is a LockError.
    """
    if why := _unreached(session):
        alone(why)
        yield None
        return
    with locked(session, own, agreed, say) as held:
        yield held


def _unreached(session: RunSession) -> str:
    """Return why the head node gives no root shell; empty when it does."""
    name = next(iter(session.rack.nodes))
    try:
        with _reached(session, name) as head:
            code, output = _run(head, "true")
    except HeadNodeError as fault:
        return fault.reason
    return HeadNodeError(name, output or f"exit {code}").reason if code else ""


def look(session: RunSession, asks: bool = False) -> None:
    """Raise LockError if another run holds the rack: no host need be read then.

    An unknown state is left to the later taking of the lock, and so is an expired lock, or that of a dead run of this
    machine if that `asks` whether to end it: without changes no lock is needed.
    """
    name = next(iter(session.rack.nodes))
    with suppress(HeadNodeError), _reached(session, name) as head:
        code, output = _run(head, run_lock.lock_query())
        if code == 0:
            other, expired = run_lock.parse_lock_query(output)
            if other != run_lock.inherited() and not expired and not (asks and other.dead):
                raise LockError(other.busy)


def _renewing(held: RunLock, beat: float) -> None:
    while not held.lost:
        gevent.sleep(beat)
        held.renew()


@contextmanager
def _reached(session: RunSession, name: str) -> Iterator[Host]:
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


def _give_back(head: Host, name: str, own: Holder) -> str | None:
    """Release the lock and return the problem with it, if any. The run itself may have broken the connection: then over
    another.
    """
    script = run_lock.release(own.text.encode())
    try:
        code, output = _run(head, script)
        if code == LOST:
            code, output = _understood(*run_on_new_connection(head, _counted(script)))
    except KeyboardInterrupt:
        code, output = LOST, "interrupted"
    except OSError as error:
        code, output = LOST, str(error)
    return run_lock.release_error(name, own, code, output)


def _run(head: Host, script: str, stdin: str | None = None) -> tuple[int, str]:
    """Run a script and return its exit status and output."""
    extra = {} if stdin is None else {"_stdin": stdin}
    try:
        fine, output = head.run_shell_command(
            StringCommand(_counted(script)),
            print_output=False,
            print_input=head.state.print_input,
            _sudo=True,
            _timeout=SCRIPT_SECONDS,
            **extra,
        )
    except (OSError, EOFError, SSHException) as error:
        return LOST, str(error) or "the connection ended"
    return _understood(fine, [*output.stdout_lines, *([] if fine else output.stderr_lines)])


def _counted(script: str) -> str:
    """The script with its exit code on a last line: pyinfra drops it."""
    return f"o=$({{ {script}; }} 2>&1); printf '%s\\n%d\\n' \"$o\" $?"


def _understood(fine: bool, lines: list[str]) -> tuple[int, str]:
    *output, code = lines or [""]
    if fine and code.isdigit():
        return int(code), "\n".join(output).strip()
    return LOST, "\n".join(lines).strip()
