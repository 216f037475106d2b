"""Starts programs by fork from a process that has imported them: an emulated switch takes 20 ms of CPU time instead of
400 ms, a run of pyinfra half of what it takes from the start.

A server is `python -m tests.emulator.fork_server FD KIND`, one of each kind for each process of pytest that needs it,
and ends with that process. What a test needs to know of the start of a program itself (its imports, PYTHONPATH, a
terminal) is for subprocess.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
LONGEST = 65536
WITH_GEVENT = ("plan", "apply", "drift", "remove")
"""Verbs that drive pyinfra: as `DRIVING` of sparkrack.cli.main, which this process of pytest may not have imported."""

IMPORTED = {
    "emulator": ("lab.routeros_emulator.__main__",),
    "pyinfra": (
        *("pyinfra_cli.main", "pyinfra.operations.server", "core.model", "core.routeros.connector", "switch.apply"),
        "core.routeros.pyinfra_facts",
    ),
    "sparkrack": (
        *("sparkrack.cli.main", "sparkrack.cli.next_step", "lab.errors"),
        *("sparkrack.cli.bootstrap", "sparkrack.cli.status", "sparkrack.cli.switch", "sparkrack.cli.verify"),
    ),
    "sparkrack with gevent": (
        *("sparkrack.cli.main", "sparkrack.engine.gevent_patch", "sparkrack.cli.next_step", "lab.errors"),
        *("sparkrack.cli.plan", "sparkrack.cli.apply", "sparkrack.cli.drift", "pyinfra.operations.server"),
        *("core.routeros.connector", "switch.apply"),
    ),
}
"""What is imported before the first fork, by kind; the first has the function `main`."""


class Forked:
    """A forked emulator."""

    def __init__(self, server: ForkServer, pid: int, stdout: int, stderr: int) -> None:
        self.pid = pid
        self._server = server
        self._stdout, self._stderr = os.fdopen(stdout), stderr

    def readline(self, timeout: float) -> str:
        """Its next line; empty when it ends or prints none in time."""
        readable, _, _ = select.select([self._stdout], [], [], timeout)
        return self._stdout.readline() if readable else ""

    def end(self, number: signal.Signals, timeout: float = 60) -> tuple[int, str]:
        """Send it a signal and wait: its exit code, and what it wrote to stderr. Raises TimeoutError."""
        os.kill(self.pid, number)
        until, reported = time.monotonic() + timeout, b""
        while True:
            readable, _, _ = select.select([self._stderr], [], [], max(0, until - time.monotonic()))
            if not readable:
                raise TimeoutError(f"the emulator still runs {timeout:.0f} s after {number.name}: {reported.decode()}")
            part = os.read(self._stderr, LONGEST)
            if not part:
                break
            reported += part
        os.close(self._stderr)
        self._stdout.close()
        return self._server.wait(self.pid), reported.decode(errors="replace")


class ForkedProgram:
    """A forked `sparkrack` or `pyinfra`, with what the tests use of subprocess.Popen. `text`: what it has written to
    stdout, and to stderr unless that is kept apart.
    """

    def __init__(
        self,
        program: str,
        words: Sequence[str],
        *,
        cwd: Path = REPOSITORY,
        env: Mapping[str, str] | Mapping[str, str | bytes],
        apart: bool = False,
    ) -> None:
        kind = "sparkrack with gevent" if program == "sparkrack" and words[:1] and words[0] in WITH_GEVENT else program
        self.returncode: int | None = None
        self._server = fork_server(kind)
        self._stdin, self._typed = os.pipe()
        self._out = os.memfd_create("stdout")
        self._err = os.memfd_create("stderr") if apart else self._out
        self.pid = self._server.start(words, self._stdin, self._out, self._err, cwd=cwd, env=env, name=program)
        os.close(self._stdin)
        self._ended = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """Return its exit code if it has ended."""
        if self.returncode is None and select.select([self._ended], [], [], 0)[0]:
            self.returncode = self._server.wait(self.pid)
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._ended, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, typed: str = "", timeout: float = 120) -> tuple[str, str]:
        """Type something, wait for its end and return stdout and stderr. Raises TimeoutError, and kills it then."""
        data, err = self.communicate_bytes(typed, timeout)
        return data.decode(), err.decode()

    def communicate_bytes(self, typed: str = "", timeout: float = 120) -> tuple[bytes, bytes]:
        """As `communicate`, for output that may be no text."""
        os.write(self._typed, typed.encode())
        os.close(self._typed)
        ended = select.select([self._ended], [], [], timeout)[0]
        if not ended:
            self.kill()
            select.select([self._ended], [], [], timeout)
        self.poll()
        out, err = _read_file(self._out), _read_file(self._err) if self._err != self._out else b""
        for file in {self._out, self._err, self._ended}:
            os.close(file)
        if not ended:
            raise TimeoutError(f"{self.pid} still ran after {timeout:.0f} s: {out.decode(errors='replace')}")
        return out, err


def _read_file(file: int) -> bytes:
    return os.pread(file, os.fstat(file).st_size, 0)


class ForkServer:
    """The process that the programs of one kind are forked from."""

    def __init__(self, kind: str) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.emulator.fork_server", str(theirs.fileno()), kind],
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def start(
        self,
        words: Sequence[str],
        *files: int,
        cwd: Path = REPOSITORY,
        env: Mapping[str, str] | Mapping[str, str | bytes] = os.environ,
        name: str = "emulator",
    ) -> int:
        """Start the program with these words, and with stdin, stdout and stderr: its process ID."""
        environment = [[os.fsencode(one).hex() for one in pair] for pair in env.items()]
        request = {"argv": [name, *words], "cwd": str(cwd), "environment": environment}
        pid: int = self._send_request(request, *files)["pid"]
        return pid

    def emulator(self, *words: str) -> Forked:
        """Start an emulator with these words."""
        stdout, its_stdout = os.pipe()
        stderr, its_stderr = os.pipe()
        stdin = os.open(os.devnull, os.O_RDONLY)
        try:
            pid = self.start(words, stdin, its_stdout, its_stderr)
        finally:
            for file in (stdin, its_stdout, its_stderr):
                os.close(file)
        return Forked(self, pid, stdout, stderr)

    def wait(self, pid: int) -> int:
        """Wait for the end of a process, which is near: its exit code, as subprocess has it."""
        code: int = self._send_request({"wait": pid})["code"]
        return code

    def _send_request(self, request: dict[str, Any], *files: int) -> dict[str, Any]:
        """Send a request with open files, and give the answer."""
        # In a file: an environment may be longer than a message.
        file = os.memfd_create("request")
        try:
            os.write(file, json.dumps(request).encode())
            with self._lock:
                socket.send_fds(self._socket, [b"request"], [file, *files])
                message = self._socket.recv(LONGEST)
        finally:
            os.close(file)
        if not message:
            raise RuntimeError("the process that forks programs has ended")
        answer: dict[str, Any] = json.loads(message)
        return answer


@cache
def fork_server(kind: str) -> ForkServer:
    """The one of this process."""
    return ForkServer(kind)


def main() -> None:
    """Serve until the process of pytest has ended; then no program is left."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    os.environ["PYINFRA_PROGRESS"] = "off"  # pyinfra looks at it when it is imported
    program, *_ = [import_module(name) for name in IMPORTED[sys.argv[2]]]
    gc.collect()
    gc.freeze()
    # gevent, which a program of this kind may use, replaces these by others that need its loop.
    fork, waitpid = _original_fork()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    running = set()
    while True:
        message, (*files,), _, _ = socket.recv_fds(connection, LONGEST, 4)
        if not message:
            break
        request = json.loads(_read_file(files[0]))
        if "argv" in request:
            pid = fork()
            if pid == 0:
                connection.close()
                os.close(files[0])
                _become_process(request, files[1:])
                sys.exit(program.main())
            running.add(pid)
            answer = {"pid": pid}
        else:
            _, status = waitpid(request["wait"], 0)
            running.remove(request["wait"])
            answer = {"code": os.waitstatus_to_exitcode(status)}
        for file in files:
            os.close(file)
        connection.send(json.dumps(answer).encode())
    for pid in running:
        os.kill(pid, signal.SIGKILL)


def _original_fork() -> tuple[Any, Any]:
    if "gevent" not in sys.modules:
        return os.fork, os.waitpid
    from gevent.monkey import get_original

    return get_original("os", "fork"), get_original("os", "waitpid")


def _become_process(request: dict[str, Any], files: Sequence[int]) -> None:
    """Make this forked process what a started one is: words, environment, folder, files and signals."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for ours, theirs in enumerate(files):
        os.dup2(theirs, ours)
    for file in files:
        os.close(file)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", errors="backslashreplace", buffering=1, closefd=False)  # type: ignore[misc]
    os.environb.clear()
    os.environb.update({bytes.fromhex(name): bytes.fromhex(value) for name, value in request["environment"]})
    os.chdir(request["cwd"])
    sys.argv[:] = request["argv"]
    sys.modules["__main__"].__package__ = None  # else click names `python -m tests.emulator.fork_server` in its usage


if __name__ == "__main__":
    main()
