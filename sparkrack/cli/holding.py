"""The lock of a rack over OpenSSH, for commands that do not drive pyinfra."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory

import click

from sparkrack.fleet import Rack
from sparkrack.ops import lock
from sparkrack.proof.machines import ssh_config
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
        self._using = threading.RLock()
        self._over = threading.Event()
        self._renewed = 0.0
        self._lost = ""

    def unreachable(self) -> str | None:
        """Why the head node gives no root shell at all; None when it does."""
        try:
            said(self._shell, "true")
        except UnreachableError as gone:
            return gone.why
        return None

    def take(self) -> None:
        """Take it, also anew after the head node has restarted. Raises ClickException when it cannot be taken."""
        began = time.monotonic()
        try:
            lock.taken(self.head, self._mine, self._fed, lambda _: False, lambda line: click.echo(line, err=True))
        except lock.LockError as fault:
            raise click.ClickException(str(fault)) from None
        with self._using:
            self._renewed, self._lost, self._restarts = began, "", False

    def renewing(self, beat: float = lock.BEAT) -> AbstractContextManager[None]:
        """Renew it every `beat` seconds meanwhile."""
        return _in_background(lambda: self._renewing(beat), self._over)

    def check(self) -> None:
        """Call this before each change. Raises ClickException if another run may change the rack now."""
        with self._using:
            silent = time.monotonic() - self._renewed
            if self._restarts or not (self._lost or silent >= lock.EXPIRED):
                return
            why = self._lost or f"{self.head}: the lock could not be renewed for {silent:.0f} s"
        raise click.ClickException(f"{why}; nothing more is changed")

    def restarts(self) -> None:
        """The head node is going to restart, and the lock will go with it."""
        self._restarts = True

    def give_back(self) -> str | None:
        """What is wrong with the lock at the end, if anything."""
        self._over.set()
        try:
            code, text = self._run(lock.release(self._mine.text.encode()))
            self._shell.close()
        except KeyboardInterrupt:
            code, text = LOST, "cut off"
        return None if self._restarts else lock.not_given_back(self.head, self._mine, code, text)

    def close(self) -> None:
        """Leave the head node as it is."""
        self._shell.close()

    def _renewing(self, beat: float) -> None:
        while not self._over.wait(beat):
            with self._using:
                if self._restarts or self._over.is_set():
                    continue
                began = time.monotonic()
                code, text = self._run(lock.renew(self._mine.text.encode()))
                if code == 0:
                    self._renewed = began
                elif code in (lock.HELD, lock.GONE):
                    self._lost = lock.not_given_back(self.head, self._mine, code, text) or ""
                    return

    def _fed(self, script: str, stdin: str | None) -> tuple[int, str]:
        return self._run(script if stdin is None else f"echo {stdin} | sh -c {quote(script)}")

    def _run(self, script: str) -> tuple[int, str]:
        """How a script ended, and what it said."""
        with self._using:
            return self._said(script)

    def _said(self, script: str) -> tuple[int, str]:
        try:
            return said(self._shell, script)
        except UnreachableError:
            # By a restart, or by Ctrl-C, which ends ssh as well: another shell is opened.
            pass
        except BaseException:
            self._shell.close()  # what it still answers is not the answer to anything that follows
            raise
        try:
            return said(self._shell, script)
        except UnreachableError as gone:
            return LOST, gone.why


@contextmanager
def _in_background(work: Callable[[], None], over: threading.Event) -> Iterator[None]:
    """Do something beside the program, until this is left."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


def said(shell: RootShell, script: str) -> tuple[int, str]:
    """How a script ended on a node, and what it said. Raises UnreachableError."""
    try:
        done = shell.run(script)
    except OSError as error:
        raise UnreachableError(shell.hostname, f"ssh: {error.strerror or error}") from None
    return done.rc, str(done.stdout).strip() or str(done.stderr).strip()


@contextmanager
def holding(rack: Rack, config: Path, what: str) -> Iterator[Held]:
    """Hold the lock of a rack meanwhile. Raises ClickException when it cannot be taken, and at the end when something
    was wrong with it."""
    held = Held(rack, config, what)
    with _keeping(held):
        yield held


@contextmanager
def holding_if_there(rack: Rack, what: str, alone: Callable[[str], None]) -> Iterator[None]:
    """As `holding`, for what may have to be done while the head node is dead or not set up yet: if it cannot be
    reached, `alone` is told why, and unless it raises, this goes on without the lock. A head node that answers
    decides: a lock that somebody else holds there, or that cannot be written, is never passed by."""
    with TemporaryDirectory(prefix="sparkrack-") as folder:
        config = Path(folder) / "ssh_config"
        config.write_text(ssh_config(rack), errors="surrogateescape")
        held = Held(rack, config, what)
        why = held.unreachable()
        if why is not None:
            held.close()
            alone(f"{held.head} keeps the lock of the rack and cannot be reached: {why}")
        kept: AbstractContextManager[None] = nullcontext() if why is not None else _keeping(held)
        with kept:
            yield


@contextmanager
def _keeping(held: Held) -> Iterator[None]:
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
                click.echo(fault, err=True)
            raise
        fault = held.give_back()
        if fault:
            raise click.ClickException(fault)


@contextmanager
def _ended_as_by_a_person() -> Iterator[None]:
    """SIGTERM, and SIGHUP when the terminal is gone, are Ctrl-C meanwhile: by themselves they end Python at once, and
    the lock stays. One that is ignored, as under nohup, stays so."""
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
