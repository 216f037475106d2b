"""One root shell on a node for a whole verification: testinfra uses it instead of a login for each command."""

from __future__ import annotations

import os
import secrets
import selectors
import shlex
import subprocess
import time
from pathlib import Path
from typing import IO, Any, cast

from testinfra.backend.base import BaseBackend, CommandResult

from core.probes.protocol import UnknownError, logged_output, logged_title
from core.util.debug_log import timed

COMMAND_SECONDS = 300
"""Seconds for one command: a check that never ends is a failed one."""
MAX_OUTPUT_BYTES = 8 << 20
"""Maximum bytes of output of one command."""
_LAST_WORDS_SECONDS = 2
"""Seconds to wait for the error output of an ssh that ends."""


class UnreachableError(UnknownError):
    """The node gives no shell, or its shell has ended; `why` has the reason."""

    def __init__(self, node: str, why: str) -> None:
        super().__init__(f"{node}: cannot be asked: {why}", f"cannot be asked: {why}")
        self.why = why


class RootShell(BaseBackend):  # type: ignore[misc] # testinfra is not checked
    """A backend of testinfra over one `ssh NODE sudo -n sh`.

    A login for each command costs a session, a sudo and their logs each time; 80 checks took 17 s so (measured in the
    lab). A command is a shell's text; it runs in a shell of its own without input, so none can disturb the next.
    """

    NAME = "root-shell"

    def __init__(self, node: str, config: Path, seconds: float = COMMAND_SECONDS) -> None:
        """`config`: the OpenSSH configuration that knows `node`."""
        super().__init__(node)
        self._command = ["ssh", "-F", str(config), node, "sudo -n sh"]
        self._seconds = seconds
        self._shell: subprocess.Popen[bytes] | None = None

    @property
    def encoding(self) -> str:
        """testinfra would ask Python on the node, which need not be there."""
        return "UTF-8"

    def run(self, command: str, *args: str, **options: Any) -> CommandResult:  # noqa: ARG002 - testinfra's own
        """Run a command. Raises UnreachableError when the node gives no answer."""
        text = self.quote(command, *args)
        begin, end = secrets.token_hex(16), secrets.token_hex(16)
        shell = self._open_shell()
        # Text before the first mark comes from the login shell, which may print a greeting.
        script = (
            f"export LC_ALL=C; echo {begin}; echo {begin} >&2; sh -c {shlex.quote(text)} </dev/null; "
            f"printf '\\n%s %d\\n' {end} \"$?\"; printf '\\n%s\\n' {end} >&2\n"
        )
        with timed(self.hostname, f"ssh: {text}", logged_title(text)) as exchange:
            printed, complained = self._read_answer(shell, script.encode(), end.encode())
            output, _, code = _after_mark(printed, begin).rpartition(b"\n" + end.encode() + b" ")
            complaints = _after_mark(complained, begin).rpartition(b"\n" + end.encode())[0]
            exchange.result = f"exit {int(code)}"
            exchange.output = logged_output((output + b"\n" + complaints).decode(errors="replace").splitlines())
        return self.result(int(code), text.encode(), output, complaints)

    def close(self) -> None:
        """End the shell; nothing of it stays on the node."""
        shell, self._shell = self._shell, None
        if shell is None:
            return
        for stream in (shell.stdin, shell.stdout, shell.stderr):
            if stream:
                stream.close()
        try:
            shell.wait(timeout=5)
        except subprocess.TimeoutExpired:
            shell.kill()
            shell.wait()

    def _open_shell(self) -> subprocess.Popen[bytes]:
        if self._shell is None:
            self._shell = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
            )
        return self._shell

    def _read_answer(self, shell: subprocess.Popen[bytes], script: bytes, mark: bytes) -> tuple[bytes, bytes]:
        """Both streams up to their marks, after the script was sent."""
        stdin, stdout, stderr = cast(tuple[IO[bytes], ...], (shell.stdin, shell.stdout, shell.stderr))
        printed = {stdout: b"", stderr: b""}
        until = time.monotonic() + self._seconds
        os.set_blocking(stdin.fileno(), False)
        with selectors.DefaultSelector() as waiting:
            waiting.register(stdin, selectors.EVENT_WRITE)
            for stream in printed:
                waiting.register(stream, selectors.EVENT_READ)
            while waiting.get_map():
                ready = waiting.select(max(0, until - time.monotonic()))
                if not ready:
                    self.close()
                    raise UnreachableError(self.hostname, f"no answer within {self._seconds:g} s")
                for key, _ in ready:
                    if key.fileobj is stdin:
                        try:
                            script = script[os.write(key.fd, script) :]
                        except OSError:
                            raise self._connection_lost(printed[stderr]) from None
                        if not script:
                            waiting.unregister(stdin)
                        continue
                    stream = stdout if key.fileobj is stdout else stderr
                    part = os.read(key.fd, 1 << 16)
                    printed[stream] += part
                    if not part:
                        raise self._connection_lost(printed[stderr])
                    if sum(map(len, printed.values())) > MAX_OUTPUT_BYTES:
                        self.close()
                        raise UnreachableError(self.hostname, f"its output exceeds {MAX_OUTPUT_BYTES >> 20} MiB")
                    # The exit code behind the mark may have come before the end of its line: a blank and three digits.
                    if mark in printed[stream][-len(part) - len(mark) - 5 :] and printed[stream].endswith(b"\n"):
                        waiting.unregister(stream)
        return printed[stdout], printed[stderr]

    def _connection_lost(self, complaints: bytes) -> UnreachableError:
        shell = self._shell
        if shell and shell.stderr and not complaints:
            complaints = _remaining_bytes(shell.stderr)
        self.close()
        lines = complaints.decode(errors="replace").strip().splitlines()
        return UnreachableError(self.hostname, lines[-1] if lines else "the connection ended")


def _after_mark(printed: bytes, mark: str) -> bytes:
    return printed.partition(f"{mark}\n".encode())[2]


def _remaining_bytes(stream: IO[bytes]) -> bytes:
    """Return the bytes that arrive on a stream until it ends, for a short time."""
    left, until = b"", time.monotonic() + _LAST_WORDS_SECONDS
    with selectors.DefaultSelector() as waiting:
        waiting.register(stream, selectors.EVENT_READ)
        while len(left) < MAX_OUTPUT_BYTES and waiting.select(max(0, until - time.monotonic())):
            part = os.read(stream.fileno(), 1 << 16)
            if not part:
                break
            left += part
    return left
