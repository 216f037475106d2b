"""The other verbs of sparkrack as child processes, which do not outlive this one by more than the step in hand."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from core.util.debug_log import LOG
from core.util.progress import WITHOUT_PROGRESS

CALL = (sys.executable, "-P", "-m", "sparkrack_start")
"""Command line of this program for a child; without the current folder on Python's path."""
WITHIN = "SPARKRACK_WITHIN"
"""Set in the environment of a command that another command of sparkrack runs: only the outer one prints a next step."""
_PR_SET_PDEATHSIG = 1
_WAIT_SECONDS = 1.0
"""Longest time in seconds until a signal is forwarded to a running command."""


class InterruptedCommandError(Exception):
    """The operator ended the run: Ctrl-C, SIGTERM, or a closed terminal. The command has ended."""


@dataclass(frozen=True)
class CommandResult:
    """Result of a command. `exit`: negative for a signal. `output`: its stdout, if it was kept."""

    exit: int
    seconds: float
    output: bytes = b""


class CommandRunner:
    """Calls commands, one at a time.

    A command shares the terminal, so Ctrl-C reaches it directly and is not sent again: a second one would interrupt
    what the first lets end. SIGTERM reaches only this process, and is forwarded. When this process is killed the kernel
    sends SIGTERM.
    """

    def __init__(self, lock: int | None, *, as_json: bool, environment: Mapping[str, str] | None = None) -> None:
        """`lock`: a descriptor that each command keeps open, if any. `as_json`: stdout is not for the output of
        commands. `environment`: variables of each command, beside those of this process.
        """
        self._environment = environment or {}
        self._lock = lock
        self._as_json = as_json
        self._child: subprocess.Popen[bytes] | None = None
        self._stop = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Let signals end verbs first, and then us, by InterruptedCommandError. One that is ignored, as
        under nohup, stays so.
        """
        numbers = [
            number
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            if signal.getsignal(number) is not signal.SIG_IGN
        ]
        before = {number: signal.signal(number, self._on_signal) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Let each of these signals end a question in the block at once, by KeyboardInterrupt: no command runs."""
        numbers = [
            number
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            if signal.getsignal(number) == self._on_signal
        ]
        for number in numbers:
            signal.signal(number, signal.default_int_handler)
        try:
            yield
        finally:
            for number in numbers:
                signal.signal(number, self._on_signal)

    def check(self) -> None:
        """Raise InterruptedCommandError when the run is to end."""
        if self._stop:
            raise InterruptedCommandError

    def call(
        self, words: Sequence[str], *, keep: bool = False, folder: Path | None = None, log: BinaryIO | None = None
    ) -> CommandResult:
        """Call a command and wait for it. `keep`: return its stdout instead of printing it. `log`: a file that gets
        what it prints. `folder`: where it runs, if not here; then it may ask although its stdout is kept.

        Raises InterruptedCommandError when the run was to end before; `check` reports an interruption during the call.
        """
        self.check()
        begin = time.monotonic()
        stdout = subprocess.PIPE if keep else sys.stderr.fileno() if self._as_json else None
        LOG.debug("calling sparkrack %s", " ".join(words))
        self._child = subprocess.Popen(
            [*CALL, *words],
            stdin=subprocess.DEVNULL if keep and folder is None else None,
            cwd=folder,
            env={
                **os.environ,
                WITHIN: "rebuild",
                **self._environment,
                **({WITHOUT_PROGRESS: "1"} if self._as_json or log else {}),
            },
            stdout=log or stdout,
            stderr=log,
            pass_fds=() if self._lock is None else (self._lock,),
            preexec_fn=_bound_to(os.getpid()),
        )
        output, code = _wait_for_end(self._child)
        self._child = None
        took = time.monotonic() - begin
        LOG.debug("sparkrack %s: exit %d, %.3f s", words[0], code, took)
        return CommandResult(code, took, output or b"")

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._stop = True
        if number == signal.SIGTERM and self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)


def _wait_for_end(child: subprocess.Popen[bytes]) -> tuple[bytes | None, int]:
    """Wait for a command; return its kept stdout and its exit code.

    The wait ends each second: of two signals that arrive together the kernel gives the second to another thread, which
    does not end a wait of the main thread, and Python runs handlers in that one only.
    """
    while True:
        with suppress(subprocess.TimeoutExpired):
            output, _ = child.communicate(timeout=_WAIT_SECONDS)
            return output, child.returncode


def _bound_to(parent: int) -> Callable[[], None]:
    """Return the function that a child runs before the command: ask the kernel for a SIGTERM at its parent's end. Only
    Linux can be asked.
    """
    if sys.platform != "linux":
        return lambda: None
    libc = ctypes.CDLL(None, use_errno=True)

    def bound() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)  # it was killed in between

    return bound
