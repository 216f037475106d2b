"""The lock of a rack, taken, renewed and given back over the head node's connection."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import gevent
from paramiko import SSHException
from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host

from sparkrack.ops import lock
from sparkrack.ops.lock import Holder, LockError
from sparkrack.ops.second import ask_anew
from sparkrack.run.session import Session

LOST = 255
"""In place of an exit code: the node gave none."""
SECONDS = 20
"""How long the head node may take for one script; `ask_anew` has a limit of its own."""


class AwayError(LockError):
    """The head node cannot be reached."""


@dataclass
class Lock:
    """The lock as a run holds it. `left`: what was wrong with it at the end, if anything."""

    head: Host
    name: str
    mine: Holder
    left: list[str] = field(default_factory=list)
    _renewed: float = field(default_factory=time.monotonic)
    _taken_away: str = ""

    @property
    def lost(self) -> str:
        """Why this run must send nothing any more; empty as long as it holds the lock."""
        if self._taken_away:
            return self._taken_away
        silent = time.monotonic() - self._renewed
        if silent < lock.EXPIRED:
            return ""
        return f"{self.name}: the lock could not be renewed for {silent:.0f} s, so another run may have taken it"

    def renew(self) -> None:
        """Say to the head node that this run lives. What does not get through is tried again at the next time."""
        began = time.monotonic()
        script = lock.renew(self.mine.text.encode())
        code, said = _run(self.head, script)
        if code == LOST:
            try:
                code, said = _understood(*ask_anew(self.head, _counted(script)))
            except OSError:
                return
        if code == 0:
            self._renewed = began  # what the node has noted is later, so it does not let go before we do
        elif code in (lock.HELD, lock.GONE):
            self._taken_away = lock.not_given_back(self.name, self.mine, code, said) or ""


@contextmanager
def locked(
    session: Session,
    mine: Holder,
    agreed: Callable[[Holder], bool] = lambda _: False,
    say: Callable[[str], None] = lambda _: None,
    beat: float = lock.BEAT,
) -> Iterator[Lock]:
    """Hold the lock meanwhile, and renew it every `beat` seconds. `agreed`, `say`: as `lock.taken` has them.

    Raises LockError when it cannot be taken, also because the head node cannot be reached: it need not be one of the
    machines that are selected.
    """
    name = next(iter(session.rack.nodes))
    with _reached(session, name) as head:
        try:
            began = time.monotonic()
            lock.taken(name, mine, lambda script, stdin: _run(head, script, stdin), agreed, say)
        except LockError:
            raise
        except BaseException:
            _give_back(head, name, mine)  # cut off by a person: it may have been taken
            raise
        lock.hold(session.state, mine.id)
        held = Lock(head, name, mine, _renewed=began)
        renewing = gevent.spawn(_renewing, held, beat)
        try:
            yield held
        finally:
            renewing.kill()
            fault = _give_back(head, name, mine)
            held.left += [fault] if fault else []


def look(session: Session, asks: bool = False) -> None:
    """Raises LockError if another run holds the rack: nothing else need be looked at then.

    What cannot be told is left to who takes the lock, and so is a lock that has expired, or that of a dead run of this
    machine if that `asks` whether to end it: without changes no lock is needed.
    """
    name = next(iter(session.rack.nodes))
    with suppress(AwayError), _reached(session, name) as head:
        code, said = _run(head, lock.glance())
        if code == 0:
            other, expired = lock.glanced(said)
            if not expired and not (asks and other.dead):
                raise LockError(other.busy)


def _renewing(held: Lock, beat: float) -> None:
    while not held.lost:
        gevent.sleep(beat)
        held.renew()


@contextmanager
def _reached(session: Session, name: str) -> Iterator[Host]:
    """The head node, connected for this long if it was not."""
    head = session.hosts[name]
    if head.connected:
        yield head
        return
    head.connect(show_errors=False)
    if not head.connected:
        why = session.unreachable.get(name, "no connection")
        raise AwayError(f"{name} keeps the lock of the rack and cannot be reached: {why}; nothing was changed")
    try:
        yield head
    finally:
        if name not in session.selection.machines:  # else the session goes on with it, and ends it
            head.disconnect()


def _give_back(head: Host, name: str, mine: Holder) -> str | None:
    """What is wrong with the lock now, if anything. The run itself may have cost the connection: then over another."""
    script = lock.release(mine.text.encode())
    try:
        code, said = _run(head, script)
        if code == LOST:
            code, said = _understood(*ask_anew(head, _counted(script)))
    except KeyboardInterrupt:
        code, said = LOST, "cut off"
    except OSError as error:
        code, said = LOST, str(error)
    return lock.not_given_back(name, mine, code, said)


def _run(head: Host, script: str, stdin: str | None = None) -> tuple[int, str]:
    """How a script ended, and what it printed."""
    extra = {} if stdin is None else {"_stdin": stdin}
    try:
        fine, output = head.run_shell_command(
            StringCommand(_counted(script)),
            print_output=False,
            print_input=head.state.print_input,
            _sudo=True,
            _timeout=SECONDS,
            **extra,
        )
    except (OSError, EOFError, SSHException) as error:
        return LOST, str(error) or "the connection ended"
    return _understood(fine, [*output.stdout_lines, *([] if fine else output.stderr_lines)])


def _counted(script: str) -> str:
    """The script with its exit code on a last line: pyinfra drops it."""
    return f"o=$({{ {script}; }} 2>&1); printf '%s\\n%d\\n' \"$o\" $?"


def _understood(fine: bool, lines: list[str]) -> tuple[int, str]:
    *said, code = lines or [""]
    if fine and code.isdigit():
        return int(code), "\n".join(said).strip()
    return LOST, "\n".join(lines).strip()
