"""pyinfra's SSH connector with limits, installed by importing this: an unresponsive node delays a run, but does not
block it.

pyinfra's own connector waits without limit for a channel and for an exit code, leaves a channel open after a timeout
(sshd allows ten to a connection, MaxSessions), keeps all output of a node, and its readers fail at bytes that are not
UTF-8, after which its time limit is not checked.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import gevent
from paramiko import Channel, SSHException, Transport
from paramiko.packet import Packetizer
from pyinfra.api.command import StringCommand
from pyinfra.api.output import echo, format_text
from pyinfra.connectors import ssh, util
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.util import CommandOutput, OutputLine

from core.probes.protocol import logged_output, logged_title
from core.util.debug_log import timed

COMMAND_SECONDS = 7200
"""Seconds for a command without its own limit: the longest one installs a driver and a kernel, about 1 GB, over a slow
line, and builds modules.
"""
CONNECT_SECONDS = 30
"""Seconds for a node from the first packet to a login; paramiko's own limits are for each step of it."""
MAX_OUTPUT_BYTES = 8 << 20
"""Maximum bytes of output of one command. The probe of all roles answers with less than a tenth of that."""
MAX_BANNER_BYTES = 64 << 10
"""Bytes that a server may send before its version: RFC 4253 allows other lines there, and no end of them."""

# In the words of every login shell, on one line each: csh reads a line at a time, and would run those of a script that
# it cannot read as a whole. It alone has a variable `shell`; others may be given one, so $SHELL is checked as well.
_REFUSE_CSH = (
    """test -z "$shell" || sh -c 'case $SHELL in *csh) exit 1; esac' || exec sh -c """
    """'echo "login shell: $SHELL is not supported; it would be sh, bash or zsh" >&2; exit 1'"""
)


class DeadlineError(OSError):
    """A node exceeded a time limit. Not a TimeoutError: pyinfra would report that with its own limit, which does not
    apply.
    """


class TooMuchOutputError(OSError):
    """A node exceeded the limit of output."""


def run_shell_command(
    self: SSHConnector,
    command: StringCommand,
    print_output: bool = False,
    print_input: bool = False,
    **arguments: Any,
) -> tuple[bool, CommandOutput]:
    """In the place of pyinfra's: run a command on the node, for at most `_timeout` seconds, or COMMAND_SECONDS.

    What the login shell prints by itself before the command begins is not part of the output. Raises DeadlineError and
    TooMuchOutputError.
    """
    control = util.extract_control_arguments(cast(Any, arguments))
    seconds = control.get("_timeout") or COMMAND_SECONDS

    def once() -> tuple[int, CommandOutput]:
        # Called through the module ssh, where ops/terminal.py replaces it to refuse a password of sudo.
        line = ssh.make_unix_command_for_host(self.state, self.host, command, **arguments)  # type: ignore[attr-defined]
        if print_input:
            echo(f"{self.host.print_prefix}>>> {line}", err=True)
        print_prefix = f"{self.host.print_prefix}" if print_output else None
        transport = self.client.get_transport() if self.client else None
        if transport is None:
            raise SSHException("SSH session not active")
        stdin = control.get("_stdin")
        return _execute_line(transport, line.get_raw_value(), stdin, bool(control.get("_get_pty")), print_prefix)

    # Not its raw value: pyinfra masks what an operation declares as a secret.
    title = logged_title(str(control.get("_stdin") or "")) or logged_title(str(command))
    with timed(str(self.host), f"ssh: {command}", title) as exchange:
        with gevent.Timeout(seconds, DeadlineError(f"no answer within {seconds:g} s")):
            code, output = util.execute_command_with_sudo_retry(self.host, cast(Any, arguments), once)
        exchange.result = f"exit {code}"
        exchange.output = logged_output([line.line for line in output])
    return code in (control.get("_success_exit_codes") or (0,)), output


def connect(self: SSHConnector) -> None:
    """In the place of pyinfra's: connect within CONNECT_SECONDS, and leave no connection behind when that fails."""
    where = f"connect by ssh to {self.data['ssh_hostname']} as {self.data['ssh_user']}"
    try:
        with (
            timed(str(self.host), where),
            gevent.Timeout(CONNECT_SECONDS, DeadlineError(f"no session within {CONNECT_SECONDS:g} s")),
        ):
            _original_connect(self)
    except BaseException:
        if self.client is not None:
            self.client.close()
        raise


def _execute_line(
    transport: Transport, line: str, stdin: Any, pty: bool, print_prefix: str | None
) -> tuple[int, CommandOutput]:
    channel = transport.open_session()
    try:
        if pty:
            channel.get_pty()
        start_marker = secrets.token_hex(16)
        channel.exec_command(f"echo {start_marker}\n{_REFUSE_CSH}\n{line}".encode())
        reader = _OutputReader(channel, start_marker, print_prefix)
        into = channel.makefile_stdin("wb", -1)
        # A command that ends before it has read its input says why itself, as sudo that needs a password.
        with suppress(OSError):
            if stdin:
                util.write_stdin(stdin, into)  # type: ignore[no-untyped-call]
            into.close()
        return reader.read_until_exit()
    finally:
        channel.close()


class _OutputReader:
    """The output of a node for one command, as lines in the order of arrival."""

    def __init__(self, channel: Channel, start_marker: str, print_prefix: str | None) -> None:
        """`start_marker`: a random line that is printed before the output of the command. `print_prefix`: prefix of
        each printed line; None: nothing is printed.
        """
        self._channel = channel
        self._start_marker = start_marker
        self._print_prefix = print_prefix
        self._left = MAX_OUTPUT_BYTES
        self._lines: list[OutputLine] = []

    def read_until_exit(self) -> tuple[int, CommandOutput]:
        """The exit code and the lines, when both streams have ended."""
        other = gevent.spawn(self._read_stream, "stderr", self._channel.recv_stderr)
        try:
            self._read_stream("stdout", self._channel.recv)
            other.join()
        finally:
            other.kill()
        if self._left < 0:
            raise TooMuchOutputError(f"its output exceeds {MAX_OUTPUT_BYTES >> 20} MiB")
        return self._channel.recv_exit_status(), CommandOutput(self._collected_lines())

    def _collected_lines(self) -> list[OutputLine]:
        for place, line in enumerate(self._lines):
            if line.buffer_name == "stdout" and line.line.endswith(self._start_marker):
                before = [one for one in self._lines[:place] if one.buffer_name != "stdout"]
                return before + self._lines[place + 1 :]
        return self._lines

    def _read_stream(self, name: str, receive: Callable[[int], bytes]) -> None:
        rest = b""
        while part := receive(1 << 15):
            self._left -= len(part)
            if self._left < 0:
                self._channel.close()  # which ends the other stream as well
                return
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                self._add_line(name, line)
        if rest:
            self._add_line(name, rest)

    def _add_line(self, name: str, line: bytes) -> None:
        text = line.decode(errors="replace")
        self._lines.append(OutputLine(name, text))
        if self._print_prefix is not None and not text.endswith(self._start_marker):
            echo(self._print_prefix + (format_text(text, "red") if name == "stderr" else text), err=True)


def _read_timeout(self: Packetizer, timeout: float) -> bytes:
    """Return the bytes before the packets, a part at a time: a banner without end would be read forever, and as long
    as it arrives faster than it is read, no time limit would be checked.
    """
    part = _original_read_timeout(self, timeout)
    read = getattr(self, "_banner_bytes", 0) + len(part)
    self._banner_bytes = read  # type: ignore[attr-defined]
    if read > MAX_BANNER_BYTES:
        raise SSHException(f"its banner is longer than {MAX_BANNER_BYTES >> 10} KiB")
    return part


_original_connect = SSHConnector.connect
_original_read_timeout: Callable[[Packetizer, float], bytes] = Packetizer._read_timeout  # type: ignore[attr-defined]
ssh.SSHConnector.run_shell_command = run_shell_command  # type: ignore[method-assign]
ssh.SSHConnector.connect = connect  # type: ignore[method-assign]
Packetizer._read_timeout = _read_timeout  # type: ignore[attr-defined]
