"""pyinfra's SSH connector with limits, installed by importing this: a node that is sick delays a run, and ends none.

pyinfra's own waits without limit for a channel and for an exit code, leaves a channel open that took too long (sshd
gives ten to a connection, MaxSessions), keeps whatever a node prints, and its readers die of bytes that are no UTF-8,
after which its time limit is not looked at.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, cast

import gevent
from paramiko import Channel, SSHException, Transport
from paramiko.packet import Packetizer
from pyinfra.api.command import StringCommand
from pyinfra.api.output import echo, format_text
from pyinfra.connectors import ssh, util
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.util import CommandOutput, OutputLine

SECONDS = 7200
"""How long a command may take that names no limit of its own: the longest one installs a driver and a kernel, about
1 GB, over a slow line, and builds modules."""
CONNECT_SECONDS = 30
"""How long a node may take from the first packet to a login; paramiko's own limits are for each step of it."""
MOST = 8 << 20
"""Bytes that a node may say to one command. The probe of all roles answers with less than a tenth of that."""
GREETING = 64 << 10
"""Bytes that a server may send before its version: RFC 4253 allows other lines there, and no end of them."""

# In the words of every login shell, on one line each: csh reads a line at a time, and would run those of a script that
# it cannot read as a whole. It alone has a variable `shell`; others may be given one, so $SHELL is looked at as well.
_REFUSE_CSH = (
    """test -z "$shell" || sh -c 'case $SHELL in *csh) exit 1; esac' || exec sh -c """
    """'echo "login shell: $SHELL is not supported; it would be sh, bash or zsh" >&2; exit 1'"""
)


class LateError(OSError):
    """A node takes longer than it may. No TimeoutError: pyinfra words that by a limit of its own, which is none."""


class TooMuchError(OSError):
    """A node says more than it may."""


def run_shell_command(
    self: SSHConnector,
    command: StringCommand,
    print_output: bool = False,
    print_input: bool = False,
    **arguments: Any,
) -> tuple[bool, CommandOutput]:
    """In the place of pyinfra's: run a command on the node, for at most `_timeout` seconds, or SECONDS.

    What the login shell prints by itself before the command begins is not part of the output. Raises LateError and
    TooMuchError.
    """
    control = util.extract_control_arguments(cast(Any, arguments))
    seconds = control.get("_timeout") or SECONDS

    def once() -> tuple[int, CommandOutput]:
        # Of the module ssh, where ops/terminal.py refuses a password of sudo.
        line = ssh.make_unix_command_for_host(self.state, self.host, command, **arguments)  # type: ignore[attr-defined]
        if print_input:
            echo(f"{self.host.print_prefix}>>> {line}", err=True)
        show = f"{self.host.print_prefix}" if print_output else None
        transport = self.client.get_transport() if self.client else None
        if transport is None:
            raise SSHException("SSH session not active")
        stdin = control.get("_stdin")
        return _carried_out(transport, line.get_raw_value(), stdin, bool(control.get("_get_pty")), show)

    with gevent.Timeout(seconds, LateError(f"no answer within {seconds:g} s")):
        code, output = util.execute_command_with_sudo_retry(self.host, cast(Any, arguments), once)
    return code in (control.get("_success_exit_codes") or (0,)), output


def connect(self: SSHConnector) -> None:
    """In the place of pyinfra's: connect within CONNECT_SECONDS, and leave no connection behind when that fails."""
    try:
        with gevent.Timeout(CONNECT_SECONDS, LateError(f"no session within {CONNECT_SECONDS:g} s")):
            _connect(self)
    except BaseException:
        if self.client is not None:
            self.client.close()
        raise


def _carried_out(transport: Transport, line: str, stdin: Any, pty: bool, show: str | None) -> tuple[int, CommandOutput]:
    channel = transport.open_session()
    try:
        if pty:
            channel.get_pty()
        mark = secrets.token_hex(16)
        channel.exec_command(f"echo {mark}\n{_REFUSE_CSH}\n{line}".encode())
        said = _Said(channel, mark, show)
        into = channel.makefile_stdin("wb", -1)
        if stdin:
            util.write_stdin(stdin, into)  # type: ignore[no-untyped-call]
        into.close()
        return said.whole()
    finally:
        channel.close()


class _Said:
    """What a node says to one command, as lines in the order in which they come."""

    def __init__(self, channel: Channel, mark: str, show: str | None) -> None:
        """`mark`: a line that stands before the answer. `show`: what each line is printed with; None: nothing is."""
        self._channel = channel
        self._mark = mark
        self._show = show
        self._left = MOST
        self._lines: list[OutputLine] = []

    def whole(self) -> tuple[int, CommandOutput]:
        """The exit code and the lines, when both streams have ended."""
        other = gevent.spawn(self._read, "stderr", self._channel.recv_stderr)
        try:
            self._read("stdout", self._channel.recv)
            other.join()
        finally:
            other.kill()
        if self._left < 0:
            raise TooMuchError(f"it says more than {MOST >> 20} MiB")
        return self._channel.recv_exit_status(), CommandOutput(self._answer())

    def _answer(self) -> list[OutputLine]:
        for place, line in enumerate(self._lines):
            if line.buffer_name == "stdout" and line.line.endswith(self._mark):
                before = [one for one in self._lines[:place] if one.buffer_name != "stdout"]
                return before + self._lines[place + 1 :]
        return self._lines

    def _read(self, name: str, receive: Callable[[int], bytes]) -> None:
        rest = b""
        while part := receive(1 << 15):
            self._left -= len(part)
            if self._left < 0:
                self._channel.close()  # which ends the other stream as well
                return
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                self._add(name, line)
        if rest:
            self._add(name, rest)

    def _add(self, name: str, line: bytes) -> None:
        text = line.decode(errors="replace")
        self._lines.append(OutputLine(name, text))
        if self._show is not None and not text.endswith(self._mark):
            echo(self._show + (format_text(text, "red") if name == "stderr" else text), err=True)


def _read_timeout(self: Packetizer, timeout: float) -> bytes:
    """What comes before the packets, a part at a time: a server that never ends its greeting would be read for ever,
    and as long as it is faster than we are, no time limit would be looked at."""
    part = _part(self, timeout)
    read = getattr(self, "_greeting", 0) + len(part)
    self._greeting = read  # type: ignore[attr-defined]
    if read > GREETING:
        raise SSHException(f"its greeting is longer than {GREETING >> 10} KiB")
    return part


_connect = SSHConnector.connect
_part: Callable[[Packetizer, float], bytes] = Packetizer._read_timeout  # type: ignore[attr-defined]
ssh.SSHConnector.run_shell_command = run_shell_command  # type: ignore[method-assign]
ssh.SSHConnector.connect = connect  # type: ignore[method-assign]
Packetizer._read_timeout = _read_timeout  # type: ignore[attr-defined]
