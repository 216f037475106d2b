"""The other verbs of sparkrack as child processes, which do not outlive this one by more than the step in hand."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

CALL = (sys.executable, "-P", "-m", "sparkrack.cli.main")
"""How this program calls itself; without the folder that the user stands in on Python's path."""
_PR_SET_PDEATHSIG = 1


class CutOffError(Exception):
    """Somebody wants an end: Ctrl-C, SIGTERM, or a terminal that is gone. The verb has ended."""


@dataclass(frozen=True)
class Ended:
    """How a verb ended. `exit`: negative for a signal. `said`: its stdout, if it was kept."""

    exit: int
    seconds: float
    said: bytes = b""


class Caller:
    """Calls verbs, one at a time.

    A verb shares the terminal, so Ctrl-C reaches it without us and is not sent again: the second one would cut off
    what the first lets end. SIGTERM comes to us only, and is handed on. When we are killed the kernel sends SIGTERM.
    """

    def __init__(self, lock: int, *, as_json: bool) -> None:
        """`lock`: a descriptor that each verb keeps open. `as_json`: stdout is not for what verbs say."""
        self._lock = lock
        self._as_json = as_json
        self._child: subprocess.Popen[bytes] | None = None
        self._stop = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Let signals end verbs first, and then us, by CutOffError. One that is ignored, as under nohup, stays so."""
        numbers = [
            number
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            if signal.getsignal(number) is not signal.SIG_IGN
        ]
        before = {number: signal.signal(number, self._asked) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def check(self) -> None:
        """Raises CutOffError when somebody wants an end."""
        if self._stop:
            raise CutOffError

    def call(self, words: Sequence[str], *, keep: bool = False) -> Ended:
        """Call a verb and wait for it; `keep`: give its stdout, and let nobody see it. Raises CutOffError when an end
        was wanted before; `check` tells whether it was meanwhile."""
        self.check()
        begin = time.monotonic()
        stdout = subprocess.PIPE if keep else sys.stderr.fileno() if self._as_json else None
        self._child = subprocess.Popen(
            [*CALL, *words],
            stdin=subprocess.DEVNULL if keep else None,
            stdout=stdout,
            pass_fds=(self._lock,),
            preexec_fn=_bound_to(os.getpid()),
        )
        said, _ = self._child.communicate()
        code = self._child.returncode
        self._child = None
        return Ended(code, time.monotonic() - begin, said or b"")

    def _asked(self, number: int, _frame: FrameType | None) -> None:
        self._stop = True
        if number == signal.SIGTERM and self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)


def _bound_to(parent: int) -> Callable[[], None]:
    """What a child does before it becomes the verb: ask the kernel for a SIGTERM at its parent's end."""
    libc = ctypes.CDLL(None, use_errno=True)

    def bound() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)  # it was killed meanwhile

    return bound
