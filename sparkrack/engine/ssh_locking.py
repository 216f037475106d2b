"""The lock of a rack over OpenSSH, for commands that do not drive pyinfra."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from shlex import quote

from core.model import Rack
from core.ops import run_lock
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import RootShell, UnreachableError
from core.util.command_error import CommandError

ANSWER_SECONDS = 30
"""Seconds for an answer of the head node."""
LOST = 255
"""In place of an exit code: the node gave none."""


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr)


class RackLock:
    """The lock of a rack as one run holds it. `head`: the node that keeps it."""

    def __init__(self, shell: RootShell, what: str | run_lock.Holder, say: Callable[[str], None] = _to_stderr) -> None:
        """`shell`: on the head node. `what`: the hosts that the run is about, or the run itself. `say`: prints a
        line.
        """
        self.head = str(shell.hostname)
        self._shell = shell
        self._mine = run_lock.new_holder(what) if isinstance(what, str) else what
        self.say = say
        self._restarts = False
        self._using = threading.RLock()
        self._over = threading.Event()
        self._renewed = 0.0
        self._lost = ""

    @property
    def environment(self) -> dict[str, str]:
        """What a command of sparkrack needs in its environment to run under this lock."""
        return {run_lock.INHERITED: self._mine.text}

    def unreachable(self) -> str | None:
        """Return why the head node gives no root shell; None when it does."""
        try:
            run_script(self._shell, "true")
        except UnreachableError as gone:
            return gone.why
        return None

    def take(self) -> None:
        """Take the lock, also again after the head node has restarted. Raises LockError when it cannot be
        taken.
        """
        began = run_lock.clock()
        run_lock.already_locked(self.head, self._mine, self._fed, lambda _: False, self.say)
        with self._using:
            self._renewed, self._lost, self._restarts = began, "", False

    def renewing(self, beat: float = run_lock.BEAT) -> AbstractContextManager[None]:
        """Renew the lock every `beat` seconds in the block."""
        return _in_background(lambda: self._renewing(beat), self._over)

    def check(self) -> None:
        """Call this before each change. Raises CommandError if another run may change the rack now."""
        if why := self.lost():
            raise CommandError(f"{why}; nothing more is changed")

    def lost(self) -> str:
        """Why this run must send nothing more; empty as long as it holds the lock. It asks no node and waits for
        nothing: it returns the result of the latest renewal."""
        if self._restarts:
            return ""
        return self._lost or run_lock.expiry_reason(self.head, run_lock.clock() - self._renewed)

    def restarts(self) -> None:
        """The head node is going to restart, and the lock will go with it."""
        self._restarts = True

    def check_before_restart(self, node: str) -> None:
        """Call this before a node restarts: the lock goes with the head node. Raises CommandError as `check` does."""
        self.check()
        if node == self.head:
            self.restarts()

    def give_back(self) -> str | None:
        """Release the lock and return the problem with it, if any."""
        self._over.set()
        try:
            code, text = self._run(run_lock.release(self._mine.text.encode()))
            self._shell.close()
        except KeyboardInterrupt:
            code, text = LOST, "interrupted"
        return None if self._restarts else run_lock.release_error(self.head, self._mine, code, text)

    def close(self) -> None:
        """Close the connection without a change of the head node."""
        self._shell.close()

    def _renewing(self, beat: float) -> None:
        while not self._over.wait(beat):
            with self._using:
                if self._restarts or self._over.is_set():
                    continue
                began = run_lock.clock()
                code, text = self._run(run_lock.renew(self._mine.text.encode()))
                if code == 0:
                    self._renewed = began
                elif code in (run_lock.HELD, run_lock.GONE) and not self._restarts:
                    self._lost = run_lock.release_error(self.head, self._mine, code, text) or ""
                    return

    def _fed(self, script: str, stdin: str | None) -> tuple[int, str]:
        return self._run(script if stdin is None else f"echo {stdin} | sh -c {quote(script)}")

    def _run(self, script: str) -> tuple[int, str]:
        """Run a script and return its exit status and output."""
        with self._using:
            return self._run_script(script)

    def _run_script(self, script: str) -> tuple[int, str]:
        try:
            return run_script(self._shell, script)
        except UnreachableError:
            # By a restart, or by Ctrl-C, which ends ssh as well: another shell is opened.
            pass
        except BaseException:
            self._shell.close()  # a late answer must not count for a later question
            raise
        try:
            return run_script(self._shell, script)
        except UnreachableError as gone:
            return LOST, gone.why


@contextmanager
def _in_background(work: Callable[[], None], over: threading.Event) -> Iterator[None]:
    """Run `work` in a thread during the block."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


def run_script(shell: RootShell, script: str) -> tuple[int, str]:
    """Run a script on a node and return its exit status and output. Raises UnreachableError."""
    try:
        done = shell.run(script)
    except OSError as error:
        raise UnreachableError(shell.hostname, f"ssh: {error.strerror or error}") from None
    return done.rc, str(done.stdout).strip() or str(done.stderr).strip()


@contextmanager
def hold_lock(rack: Rack, what: str | run_lock.Holder, say: Callable[[str], None] = _to_stderr) -> Iterator[RackLock]:
    """Hold the lock of a rack in the block. Raises CommandError when it cannot be taken, and at the end when there
    was a problem with it. The arguments are those of `RackLock`.
    """
    head = next(iter(rack.nodes))
    with open_shells(rack, [head], ANSWER_SECONDS) as shells:
        held = RackLock(shells[head], what, say)
        with _keeping(held):
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
        held = RackLock(shells[head], what, say)
        why = held.unreachable()
        if why is not None:
            held.close()
            alone(f"{held.head}, which stores the lock of the rack, is unreachable: {why}")
        if why is not None:
            yield lambda: ""
            return
        with _keeping(held):
            yield held.lost


@contextmanager
def _keeping(held: RackLock) -> Iterator[None]:
    with _ended_as_by_a_person():
        try:
            held.take()
        except KeyboardInterrupt:
            held.give_back()  # it may have been taken
            raise
        except BaseException:
            held.close()
            raise
        try:
            with held.renewing():
                yield
        except BaseException:
            fault = held.give_back()
            if fault:
                held.say(fault)
            raise
        fault = held.give_back()
        if fault:
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
