"""The lock of a rack as one run holds it, over any connection to the head node."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from core.ops import run_lock
from core.ops.run_lock import Holder, LockError, Run
from core.util.command_error import CommandError

LOST = 255
"""In place of an exit code: the node gave none."""


class RackLock:
    """The lock of a rack as one run holds it. `head`: the node that keeps it. `left`: problems with it at the end, if
    any.
    """

    def __init__(
        self,
        head: str,
        own: Holder,
        run: Run,
        say: Callable[[str], None],
        agreed: Callable[[Holder], bool] = lambda _: False,
        *,
        inherited: bool = False,
    ) -> None:
        """`own`: the run. `run`: runs a script on the head node; its exit code is LOST when there is no answer, also
        not over another connection. `say`, `agreed`: as in `run_lock.acquire`. `inherited`: the command that has
        started this one holds the lock, and releases it.
        """
        self.head, self.own, self.inherited = head, own, inherited
        self.say, self._agreed = say, agreed
        self.left: list[str] = []
        self._run = run
        self._using = threading.RLock()
        self._over = threading.Event()
        self._renewed = 0.0
        self._lost = ""
        self._restarts = False

    @property
    def environment(self) -> dict[str, str]:
        """What a command of sparkrack needs in its environment to run under this lock."""
        return {run_lock.INHERITED: self.own.text}

    def take(self) -> None:
        """Take the lock, also again after the head node has restarted; an inherited one is renewed. Raises LockError
        when it cannot be taken.
        """
        with self._using:
            began = run_lock.clock()
            if self.inherited:
                code, output = self._run(run_lock.renew(self._content_of_lock), None)
                if fault := run_lock.release_error(self.head, self.own, code, output):
                    raise LockError(f"{fault}; nothing was changed")
            else:
                run_lock.acquire(self.head, self.own, self._run, self._agreed, self.say)
            self._renewed, self._lost, self._restarts = began, "", False

    def lost(self) -> str:
        """Why this run must send nothing more; empty as long as it holds the lock. It asks no node and waits for
        nothing: it returns the result of the latest renewal."""
        if self._restarts:
            return ""
        return self._lost or run_lock.expiry_reason(self.head, run_lock.clock() - self._renewed)

    def check(self) -> None:
        """Call this before each change. Raises CommandError if another run may change the rack now."""
        if why := self.lost():
            raise CommandError(f"{why}; nothing more is changed")

    def restarts(self) -> None:
        """The head node is going to restart, and the lock will go with it."""
        self._restarts = True

    def check_before_restart(self, node: str) -> None:
        """Call this before a node restarts: the lock goes with the head node. Raises CommandError as `check` does."""
        self.check()
        if node == self.head:
            self.restarts()

    def renew(self) -> None:
        """Report to the head node that this run lives. What does not get through is tried again at the next time."""
        with self._using:
            if self._restarts or self._over.is_set():
                return
            began = run_lock.clock()
            code, output = self._run(run_lock.renew(self._content_of_lock), None)
            if code == 0:
                # The node's own time is later: the lock does not expire there before it does here.
                self._renewed = began
            elif code in (run_lock.HELD, run_lock.GONE) and not self._restarts:
                self._lost = run_lock.release_error(self.head, self.own, code, output) or ""

    @contextmanager
    def renewing(self, beat: float = run_lock.BEAT) -> Iterator[None]:
        """Renew the lock every `beat` seconds in the block, in a thread."""

        def renew_until_over() -> None:
            while not self._over.wait(beat) and not self._lost:
                self.renew()

        thread = threading.Thread(target=renew_until_over, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()

    def give_back(self) -> str | None:
        """Release the lock and return the problem with it, if any. An inherited one stays."""
        self._over.set()
        if self.inherited:
            return None
        try:
            with self._using:
                code, output = self._run(run_lock.release(self._content_of_lock), None)
        except KeyboardInterrupt:
            code, output = LOST, "interrupted"
        fault = None if self._restarts else run_lock.release_error(self.head, self.own, code, output)
        self.left += [fault] if fault else []
        return fault

    @property
    def _content_of_lock(self) -> bytes:
        return self.own.text.encode()
