"""Starts emulated switches by fork from a process that has imported them: 20 ms of CPU time each instead of 400 ms.

The server is `python -m tests.emulator.fork_server FD`, one for each process of pytest, and ends with it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from functools import cache
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
LONGEST = 65536


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
        code: int = self._server.ask({"wait": self.pid})["code"]
        return code, reported.decode(errors="replace")


class ForkServer:
    """The process that emulators are forked from."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.emulator.fork_server", str(theirs.fileno())],
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
                pass_fds=[theirs.fileno()],
            )

    def start(self, *arguments: str) -> Forked:
        """An emulator with these arguments."""
        stdout, its_stdout = os.pipe()
        stderr, its_stderr = os.pipe()
        try:
            pid: int = self.ask({"start": arguments}, its_stdout, its_stderr)["pid"]
        finally:
            os.close(its_stdout)
            os.close(its_stderr)
        return Forked(self, pid, stdout, stderr)

    def ask(self, request: dict[str, Any], *files: int) -> dict[str, Any]:
        """Send a request with open files, and give the answer."""
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], files)
            message = self._socket.recv(LONGEST)
        if not message:
            raise RuntimeError("the process that forks emulators has ended")
        answer: dict[str, Any] = json.loads(message)
        return answer


@cache
def fork_server() -> ForkServer:
    """The one of this process."""
    return ForkServer()


def main() -> None:
    """Serve until the process of pytest has ended; then no emulator is left."""
    from lab.routeros_emulator.__main__ import main as emulate

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    running = set()
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        while True:
            message, files, _, _ = socket.recv_fds(connection, LONGEST, 2)
            if not message:
                break
            request = json.loads(message)
            if "start" in request:
                pid = os.fork()
                if pid == 0:
                    connection.close()
                    _emulator(emulate, request["start"], *files)
                running.add(pid)
                answer = {"pid": pid}
            else:
                _, status = os.waitpid(request["wait"], 0)
                running.remove(request["wait"])
                answer = {"code": os.waitstatus_to_exitcode(status)}
            for file in files:
                os.close(file)
            connection.send(json.dumps(answer).encode())
    for pid in running:
        os.kill(pid, signal.SIGKILL)


def _emulator(emulate: Any, arguments: list[str], stdout: int, stderr: int) -> None:
    """Run the emulator in a forked process. Never returns."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for ours, theirs in ((1, stdout), (2, stderr)):
            os.dup2(theirs, ours)
            os.close(theirs)
        sys.argv[1:] = arguments
        code = emulate()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
