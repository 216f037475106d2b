"""How a command line meets the login shells of the field; a csh reads no line of ours but those that refuse it."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gevent
import paramiko
import pytest
from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import ConnectError
from pyinfra.connectors.util import CommandOutput, OutputLine

from core.ops import patch_ssh_connector
from core.ops.patch_ssh_connector import (
    _REFUSE_CSH,
    MAX_BANNER_BYTES,
    MAX_OUTPUT_BYTES,
    DeadlineError,
    TooMuchOutputError,
    _execute_line,
    _OutputReader,
    _read_timeout,
)
from tests.unit.sshserver import AnyKey, SshServer

SCRIPT = f"echo mark\n{_REFUSE_CSH}\nsh -c 'set -eu\nif true; then\necho \"!done\"\nfi'"


def run(shell: str) -> subprocess.CompletedProcess[str]:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"no {shell} on this machine")
    environment = {"PATH": "/usr/bin:/bin", "SHELL": path, "HOME": "/"}
    return subprocess.run([path, "-c", SCRIPT], capture_output=True, text=True, env=environment, timeout=60)


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "zsh", "ksh", "fish"])
def test_a_shell_that_can_read_the_script_runs_it(shell: str) -> None:
    done = run(shell)
    assert (done.returncode, done.stdout, done.stderr) == (0, "mark\n!done\n", "")


@pytest.mark.parametrize("shell", ["csh", "tcsh"])
def test_csh_is_refused_in_words_and_runs_nothing(shell: str) -> None:
    done = run(shell)
    assert (done.returncode, done.stdout) == (1, "mark\n")
    assert done.stderr == f"login shell: {shutil.which(shell)} is not supported; it would be sh, bash or zsh\n"


class GreetingServer(SshServer):
    """Runs each command by /bin/sh, after a greeting on both streams, as a file of a login shell prints one."""

    def behind(self, transport: paramiko.Transport) -> AnyKey:  # noqa: ARG002
        class Commands(AnyKey):
            def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
                threading.Thread(target=execute, args=(channel, command), daemon=True).start()
                return True

        def execute(channel: paramiko.Channel, command: bytes) -> None:
            while channel.recv(1 << 10):  # to the end of its input, so that its request was answered
                pass
            greeted = b"echo Welcome; echo greeting >&2\n" + command
            done = subprocess.run(["/bin/sh", "-c", greeted], stdin=subprocess.DEVNULL, capture_output=True)
            channel.sendall(done.stdout)
            channel.sendall_stderr(done.stderr)
            channel.send_exit_status(done.returncode)
            channel.close()

        return Commands()


class RefusingServer(SshServer):
    """Refuses each command after the first bytes of its input, as sudo does that needs a password."""

    def behind(self, transport: paramiko.Transport) -> AnyKey:  # noqa: ARG002
        class Commands(AnyKey):
            def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:  # noqa: ARG002
                threading.Thread(target=refuse, args=(channel,), daemon=True).start()
                return True

        def refuse(channel: paramiko.Channel) -> None:
            channel.recv(1)  # so that its request was answered
            channel.sendall_stderr(b"sudo: a password is required\n")
            channel.send_exit_status(1)
            channel.close()

        return Commands()


def executed(server: SshServer, line: str, stdin: str | None = None) -> tuple[int, CommandOutput]:
    """The exit code and the output of a command on a server, which ends then."""
    client = paramiko.SSHClient()
    client.get_host_keys().add(f"[127.0.0.1]:{server.port}", server.key.get_name(), server.key)
    try:
        key = paramiko.ECDSAKey.generate()
        client.connect("127.0.0.1", server.port, "ops", pkey=key, look_for_keys=False, allow_agent=False)
        transport = client.get_transport()
        assert transport
        return _execute_line(transport, line, stdin, False, None)
    finally:
        client.close()
        server.close()


def test_a_command_that_ends_before_it_has_read_its_input_says_why() -> None:
    """4 MiB: more than the channel takes before the server reads."""
    code, output = executed(RefusingServer("127.0.0.1"), "sudo -n true", "x" * (4 << 20))
    assert (code, output.stderr_lines) == (1, ["sudo: a password is required"])


def test_what_a_login_shell_prints_before_a_command_is_not_its_output() -> None:
    code, output = executed(
        GreetingServer("127.0.0.1"), "echo one; printf two; echo three >&2; printf four >&2; exit 3"
    )
    assert (code, output.stdout_lines, output.stderr_lines) == (
        3,
        ["one", "two"],
        ["greeting", "three", "four"],
    )


class Channel:
    """A channel that receives these parts of standard output, and of standard error."""

    def __init__(self, parts: list[bytes], errors: list[bytes] | None = None) -> None:
        self.parts, self.errors = [*parts], [*(errors or [])]
        self.closed = False

    def recv(self, _size: int) -> bytes:
        return self.parts.pop(0) if self.parts and not self.closed else b""

    def recv_stderr(self, _size: int) -> bytes:
        return self.errors.pop(0) if self.errors and not self.closed else b""

    def recv_exit_status(self) -> int:
        return 7

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(("more", "taken"), [(0, True), (1, False)])
def test_of_one_command_no_more_is_read_than_the_limit(more: int, taken: bool) -> None:
    half = MAX_OUTPUT_BYTES // 2
    channel = Channel([b"x" * half, b"x" * (MAX_OUTPUT_BYTES - half), *([b"x" * more] if more else [])])
    reader = _OutputReader(channel, "mark", None)  # type: ignore[arg-type]
    if taken:
        code, output = reader.read_until_exit()
        assert (code, len(output.stdout_lines[0])) == (7, MAX_OUTPUT_BYTES)
        assert not channel.closed
        return
    with pytest.raises(TooMuchOutputError, match=f"^its output exceeds {MAX_OUTPUT_BYTES // 2**20} MiB$"):
        reader.read_until_exit()
    assert channel.closed


def test_what_arrives_is_printed_but_for_the_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[tuple[str, bool]] = []
    monkeypatch.setattr(patch_ssh_connector, "echo", lambda text, err: printed.append((text, err)))
    monkeypatch.setattr(patch_ssh_connector, "format_text", lambda text, colour: f"<{colour}>{text}")
    channel = Channel([b"hello\nma", b"rk\none\ntw\xffo"], [b"three\n"])
    _, output = _OutputReader(channel, "mark", "[a] ").read_until_exit()  # type: ignore[arg-type]
    assert sorted(printed) == [
        ("[a] <red>three", True),
        ("[a] hello", True),
        ("[a] one", True),
        ("[a] tw\ufffdo", True),
    ]
    assert (output.stdout_lines, output.stderr_lines) == (["one", "tw\ufffdo"], ["three"])


def test_an_output_without_the_mark_is_all_of_the_answer() -> None:
    _, output = _OutputReader(Channel([b"one\nmark two\n"]), "mark", None).read_until_exit()  # type: ignore[arg-type]
    assert output.stdout_lines == ["one", "mark two"]


@pytest.mark.parametrize("pty", [True, False])
def test_a_command_gets_its_terminal_and_its_input(pty: bool) -> None:
    heard: list[object] = []

    class Into:
        def write(self, text: bytes) -> None:
            heard.append(text)

        def close(self) -> None:
            heard.append("closed")

    class Open(Channel):
        def get_pty(self) -> None:
            heard.append("pty")

        def exec_command(self, line: bytes) -> None:
            self.parts = [line.split(b"\n")[0].removeprefix(b"echo ") + b"\nfine\n"]

        def makefile_stdin(self, mode: str, size: int) -> Into:
            heard.append((mode, size))
            return Into()

    channel = Open([])
    transport: Any = SimpleNamespace(open_session=lambda: channel)
    code, output = _execute_line(transport, "true", "secret", pty, None)
    assert (code, output.stdout_lines, channel.closed) == (7, ["fine"], True)
    assert heard == [*(["pty"] if pty else []), ("wb", -1), b"secret\n", "closed", "closed"]


@pytest.mark.parametrize(("more", "taken"), [(0, True), (1, False)])
def test_a_banner_is_read_up_to_its_limit(monkeypatch: pytest.MonkeyPatch, more: int, taken: bool) -> None:
    parts = [b"x" * 1000, b"x" * (MAX_BANNER_BYTES - 1000 + more)]
    monkeypatch.setattr(patch_ssh_connector, "_original_read_timeout", lambda _packets, _seconds: parts.pop(0))
    packets: Any = SimpleNamespace()
    read: Callable[[], bytes] = lambda: _read_timeout(packets, 1)  # noqa: E731
    assert len(read()) == 1000
    if taken:
        assert len(read()) == MAX_BANNER_BYTES - 1000
    else:
        with pytest.raises(paramiko.SSHException, match=f"^its banner is longer than {MAX_BANNER_BYTES // 1024} KiB$"):
            read()


def connector(client: Any = None) -> Any:
    host = SimpleNamespace(print_prefix="[a] ", connector_data={}, data={})
    return SimpleNamespace(
        state=SimpleNamespace(),
        host=host,
        client=client,
        data={"ssh_hostname": "10.0.0.1", "ssh_user": "ops"},
    )


@pytest.mark.parametrize(
    ("arguments", "code", "fine"),
    [
        ({}, 0, True),
        ({}, 1, False),
        ({"_success_exit_codes": [0, 3]}, 3, True),
        ({"_success_exit_codes": [3]}, 0, False),
    ],
)
def test_a_command_ends_well_by_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], code: int, fine: bool
) -> None:
    sent: list[tuple[Any, ...]] = []

    def execute(*words: Any) -> tuple[int, CommandOutput]:
        sent.append(words)
        return code, CommandOutput([OutputLine("stdout", "x")])

    monkeypatch.setattr(patch_ssh_connector, "_execute_line", execute)
    client = SimpleNamespace(get_transport=lambda: "transport")
    options = {"_stdin": "in", "_get_pty": True, **arguments}
    done, output = patch_ssh_connector.run_shell_command(
        connector(client), StringCommand("true"), print_output=True, **options
    )
    assert (done, output.stdout_lines) == (fine, ["x"])
    ((transport, line, stdin, pty, prefix),) = sent
    assert (transport, stdin, pty, prefix) == ("transport", "in", True, "[a] ")
    assert "true" in line


def test_a_command_is_printed_when_that_is_wanted_and_needs_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[tuple[str, bool]] = []
    monkeypatch.setattr(patch_ssh_connector, "echo", lambda text, err: printed.append((text, err)))
    with pytest.raises(paramiko.SSHException, match=r"^SSH session not active$"):
        patch_ssh_connector.run_shell_command(connector(), StringCommand("true"), print_input=True)
    ((text, err),) = printed
    assert (text.startswith("[a] >>> "), "true" in text, err) == (True, True, True)


def test_a_command_that_does_not_answer_in_time_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patch_ssh_connector, "_execute_line", lambda *_: gevent.sleep(60))
    client = SimpleNamespace(get_transport=lambda: "transport")
    with pytest.raises(DeadlineError, match=r"^no answer within 0.1 s$"):
        patch_ssh_connector.run_shell_command(connector(client), StringCommand("true"), _timeout=0.1)


def test_a_connection_that_fails_leaves_no_client_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    client = SimpleNamespace(close=lambda: closed.append(True))

    def fail(_self: object) -> None:
        raise ConnectError("no")

    monkeypatch.setattr(patch_ssh_connector, "_original_connect", fail)
    for each in (client, None):
        with pytest.raises(ConnectError, match=r"^no$"):
            patch_ssh_connector.connect(connector(each))
    assert closed == [True]
    monkeypatch.setattr(patch_ssh_connector, "CONNECT_SECONDS", 0.1)
    monkeypatch.setattr(patch_ssh_connector, "_original_connect", lambda _self: gevent.sleep(60))
    with pytest.raises(DeadlineError, match=r"^no session within 0.1 s$"):
        patch_ssh_connector.connect(connector(client))
    assert closed == [True, True]
